package httpingest

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"weir/ingest"
	"weir/model"
	"weir/registry/shared"
)

// Attributes reads what devices may read of themselves.
type Attributes interface {
	// SharedSets returns the sets of devices in the order of the argument, as they were committed last.
	SharedSets(ctx context.Context, devices ...model.Binding) ([]shared.Set, error)
}

// attributesOf returns what a path /{instanceId}/{tenant}/device-attributes/{device} names, where attributes can be read.
func (h *handler) attributesOf(u *url.URL) (tenant, device string, ok bool) {
	names, ok := h.segmentsOf(u, 3)
	if !ok || h.polls == nil || h.deps.Attributes == nil || names[1] != "device-attributes" {
		return "", "", false
	}
	return names[0], names[2], true
}

// readAttributes answers a device that asks for its attributes: with the set, or with 304 when it has that revision. It is no message: the
// ledger does not have it.
func (h *handler) readAttributes(ctx *timeout, w http.ResponseWriter, r *http.Request, tenant, device string) {
	set, answer := h.attributes(ctx, w, r, tenant, device)
	const caching = "no-cache" // by a proxy neither, unless it asks
	if set != nil {
		answer.status = http.StatusOK
		tag := `"` + set.Revision + `"`
		w.Header().Set("ETag", tag)
		if hasTag(r.Header.Values("If-None-Match"), tag) {
			answer.status = http.StatusNotModified
		}
	}
	h.metrics.requests.WithLabelValues(strconv.Itoa(answer.status)).Inc()
	switch answer.status {
	case http.StatusOK:
		_ = writeJSON(w, set.Body, caching) // the device may have disconnected: it asks again
	case http.StatusNotModified:
		w.Header().Set("Cache-Control", caching)
		w.WriteHeader(answer.status)
	default:
		answer.write(w)
	}
}

// hasTag reports whether one of the fields of an If-None-Match has an entity tag, by the weak comparison (RFC 9110, section 13.1.2).
func hasTag(fields []string, tag string) bool {
	for _, field := range fields {
		for one := range strings.SplitSeq(field, ",") {
			if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == tag {
				return true
			}
		}
	}
	return false
}

// attributes returns the set of the device that asks, or the answer where there is none.
func (h *handler) attributes(ctx *timeout, w http.ResponseWriter, r *http.Request, tenant, device string) (*shared.Set, response) {
	c, fault := credentialOf(r.Header)
	switch {
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		return nil, response{status: http.StatusMethodNotAllowed, text: "only GET is allowed here"}
	case !model.ValidToken(tenant):
		return nil, response{status: http.StatusBadRequest, text: "the tenant is not a valid tenant id"}
	case !model.ValidToken(device):
		return nil, response{status: http.StatusBadRequest, text: "the device is not a valid device token"}
	case fault != "":
		return nil, response{status: http.StatusBadRequest, text: fault}
	case h.deps.Intake.TenantFull(tenant):
		return nil, overCeiling
	}
	proof, refused := h.deps.Intake.Identify(ctx, tenant, c, senderOf(r))
	switch {
	case refused != nil && refused.Reason == ingest.ReasonBadCredential, refused == nil && device != proof.Device:
		return nil, response{status: http.StatusForbidden, text: "the credential is not that of the device"}
	case refused != nil:
		return nil, responseTo(*refused)
	}
	sets, err := h.deps.Attributes.SharedSets(ctx, model.Binding{TenantID: proof.TenantID, DeviceID: proof.DeviceID})
	if err != nil {
		h.deps.Logger.Warn("reading the attributes of a device failed", "tenant", tenant, "device", device, "error", err)
		return nil, response{status: http.StatusServiceUnavailable, text: "the attributes cannot be read now", retryAfter: ceilingRetry}
	}
	return &sets[0], response{}
}
