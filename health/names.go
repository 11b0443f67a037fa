package health

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Names checks that the host names in the configuration can be resolved on this machine. It does nothing without host
// names. resolve is net.DefaultResolver.LookupHost.
func Names(values []string, resolve func(context.Context, string) ([]string, error)) Check {
	return Check{"dns", func(ctx context.Context) Finding {
		hosts := hostsIn(values)
		if len(hosts) == 0 {
			return Skip("no configured value needs name resolution")
		}
		var bad []string
		for _, h := range hosts {
			if _, err := resolve(ctx, h); err != nil {
				bad = append(bad, h+": "+err.Error())
			}
		}
		if len(bad) > 0 {
			return Warn("look at /etc/resolv.conf and the name server; devices that are given this name must be able to resolve it, too", "%s", strings.Join(bad, "; "))
		}
		return Good("%s can be resolved", strings.Join(hosts, ", "))
	}}
}

// hostsIn are the names in URLs and addresses, without those that every machine knows.
func hostsIn(values []string) (hosts []string) {
	for _, v := range values {
		host := v
		if u, err := url.Parse(v); err == nil && u.Host != "" {
			host = u.Hostname()
		} else if h, _, err := net.SplitHostPort(v); err == nil {
			host = h
		}
		if _, err := netip.ParseAddr(host); err == nil || host == "" || host == "localhost" || slices.Contains(hosts, host) {
			continue
		}
		hosts = append(hosts, host)
	}
	return hosts
}
