package crash_test

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"weir/internal/test/testweir"
)

// churn changes the registry meanwhile: it makes devices with attributes that make them members of a group, has each relate itself to
// an area and send one reading, and takes them away again. It publishes a profile, and the group with another selector, under which
// each is a member, too; it moves a geofence; and one device reports attributes. A name is never used twice, so what was not answered
// may hold or not, and what was answered must.
type churn struct {
	tenant, token string

	next      int
	made      map[int]bool // false: asked for
	gone      map[int]bool // false: asked for
	related   map[int]bool // relationships that the devices made; false: sent
	kept      map[int]bool // readings; false: sent
	published int          // publications that were answered
	asked     int
	reported  int  // newest report that was answered
	reporting int  // … that was sent
	moved     int  // changes of the geofence that were answered
	movedLast int  // newest of them
	moving    int  // newest that was asked for
	full      bool // the disk is full at times: what devices change may end as a dead letter, as every growth is refused then
}

func newChurn(tenant string) *churn {
	return &churn{tenant: tenant, made: map[int]bool{}, gone: map[int]bool{}, related: map[int]bool{}, kept: map[int]bool{}}
}

// keepOn repeats a step until stop is closed or something is not answered.
func keepOn(stop <-chan struct{}, step func(*http.Client) bool) {
	client := &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}
	defer client.CloseIdleConnections()
	for {
		select {
		case <-stop:
			return
		default:
		}
		if !step(client) {
			return
		}
	}
}

func (c *churn) step(p *testweir.Proc, client *http.Client) bool {
	c.next++
	k := c.next
	c.made[k] = false
	if err := p.TryQuery("device-management", c.token, fmt.Sprintf(`mutation{a:createDevice(request:{token:"x%[1]d",deviceTypeToken:"plain"}){id}
		b:createDeviceCredential(request:{token:"x%[1]d",deviceToken:"x%[1]d",credentialType:"ACCESS_TOKEN",credentialId:"key-%[1]d",enabled:true}){id}}`, k), nil, nil); err != nil {
		return false
	}
	c.made[k] = true
	if err := p.TryQuery("device-management", c.token, fmt.Sprintf(`mutation{a:setEntityAttribute(request:{entityType:"device",entity:"x%[1]d",scope:"SHARED",attrKey:"limit",valueType:"LONG",value:"%[1]d"}){id}
		b:setEntityAttribute(request:{entityType:"device",entity:"x%[1]d",scope:"SHARED",attrKey:"site",valueType:"STRING",value:"here"}){id}}`, k), nil, nil); err != nil {
		return false
	}
	c.related[k] = false
	if !post(client, p, c.tenant, fmt.Appendf(nil, `{"eventType":"NewRelationship","payload":{"relationshipType":"assigned","targetType":"area","target":"hall"},"credentialType":"ACCESS_TOKEN","credentialId":"key-%d"}`, k)) {
		return false
	}
	c.related[k] = true
	c.kept[k] = false
	if !post(client, p, c.tenant, fmt.Appendf(nil, `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"n":"%d"}}]},"credentialType":"ACCESS_TOKEN","credentialId":"key-%d","altId":"x%d","occurredTime":%q}`,
		k, k, k, time.Now().UTC().Format(time.RFC3339Nano))) {
		return false
	}
	c.kept[k] = true
	if old := k - 2; c.made[old] {
		if _, asked := c.gone[old]; !asked {
			c.gone[old] = false
			if err := p.TryQuery("device-management", c.token, fmt.Sprintf(`mutation{deleteDevice(token:"x%d")}`, old), nil, nil); err != nil {
				return false
			}
			c.gone[old] = true
		}
	}
	selector := []string{`attr["limit"] > 0`, `attr["site"] == "here"`}[k%2]
	if err := p.TryQuery("device-management", c.token, fmt.Sprintf(`mutation{a:updateEntityGroup(token:"all",request:{selector:%q}){id} b:publishEntityGroup(token:"all"){version}}`, selector), nil, nil); err != nil {
		return false
	}
	c.asked++
	if err := p.TryQuery("device-management", c.token, fmt.Sprintf(`mutation{a:updateDeviceProfile(token:"p",request:{description:"%d"}){id} b:publishDeviceProfile(token:"p"){version}}`, c.asked), nil, nil); err != nil {
		return false
	}
	c.published++
	return c.report(p, client) && c.move(p)
}

// report reports two attributes, of which the second is there after each other report only.
func (c *churn) report(p *testweir.Proc, client *http.Client) bool {
	c.reporting++
	second := "null"
	if c.reporting%2 == 0 {
		second = strconv.Itoa(c.reporting)
	}
	if !report(client, p, c.tenant, "reporter", "reporter-key", fmt.Sprintf(`{"attributes":{"first":%d,"second":%s}}`, c.reporting, second)) {
		return false
	}
	c.reported = c.reporting
	return true
}

// move gives the geofence another corner, which makes another version of the set.
func (c *churn) move(p *testweir.Proc) bool {
	c.moving++
	if err := p.TryQuery("device-management", c.token, fmt.Sprintf(`mutation{updateGeoFence(token:"yard",request:{geometry:%q}){id}}`, yard(c.moving)), nil, nil); err != nil {
		return false
	}
	c.moved, c.movedLast = c.moved+1, c.moving
	return true
}

// yard is the geofence after so many changes, in its normal form.
func yard(changes int) string {
	return fmt.Sprintf(`{"kind":"POLYGON_2D","geometry":{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,%d],[0,0]]]}}`, 1+changes%80)
}
