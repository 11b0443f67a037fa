package crash_test

import (
	"fmt"
	"net/http"
	"time"

	"weir/internal/test/testweir"
)

// churn changes the registry meanwhile: it makes devices, has each send one reading, takes them away again and publishes a
// profile. A name is never used twice, so what was not answered may hold or not, and what was answered must.
type churn struct {
	tenant, token string

	next      int
	made      map[int]bool // false: asked for
	gone      map[int]bool // false: asked for
	kept      map[int]bool // readings; false: sent
	published int          // publications that were answered
	asked     int
}

func newChurn(tenant string) *churn {
	return &churn{tenant: tenant, made: map[int]bool{}, gone: map[int]bool{}, kept: map[int]bool{}}
}

// run goes on until stop is closed or something is not answered.
func (c *churn) run(p *testweir.Proc, stop <-chan struct{}) {
	client := &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}
	defer client.CloseIdleConnections()
	for {
		select {
		case <-stop:
			return
		default:
		}
		c.next++
		if !c.step(p, client, c.next) {
			return
		}
	}
}

func (c *churn) step(p *testweir.Proc, client *http.Client, k int) bool {
	c.made[k] = false
	if err := p.TryQuery("device-management", c.token, fmt.Sprintf(`mutation{a:createDevice(request:{token:"x%[1]d",deviceTypeToken:"plain"}){id}
		b:createDeviceCredential(request:{token:"x%[1]d",deviceToken:"x%[1]d",credentialType:"ACCESS_TOKEN",credentialId:"key-%[1]d",enabled:true}){id}}`, k), nil, nil); err != nil {
		return false
	}
	c.made[k] = true
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
	c.asked++
	if err := p.TryQuery("device-management", c.token, fmt.Sprintf(`mutation{a:updateDeviceProfile(token:"p",request:{description:"%d"}){id} b:publishDeviceProfile(token:"p"){version}}`, c.asked), nil, nil); err != nil {
		return false
	}
	c.published++
	return true
}
