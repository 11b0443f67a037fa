package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"golang.org/x/sync/errgroup"
)

const (
	tenant   = "acme"
	email    = "bench@example.org"
	password = "correct horse battery"
)

// query runs a GraphQL document and decodes its data.
func (in *instance) query(ctx context.Context, area, doc string, vars map[string]any, into any) error {
	body, err := json.Marshal(map[string]any{"query": doc, "variables": vars})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, in.api+"/api/"+area+"/graphql", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if in.token != "" {
		req.Header.Set("Authorization", "Bearer "+in.token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var out struct {
		Data   json.RawMessage
		Errors []struct{ Message string }
	}
	if err := json.Unmarshal(b, &out); err != nil || len(out.Errors) > 0 {
		return fmt.Errorf("%s: %s: %.500s", area, resp.Status, b)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(out.Data, into)
}

// furnish makes the tenant, its administrator, a profile with so many threshold rules, and a device type. The first rule
// is met now and then, the others never.
func (in *instance) furnish(ctx context.Context, rules int) error {
	if err := in.run(ctx, "", "tenant", "create", tenant); err != nil {
		return err
	}
	if err := in.run(ctx, password, "admin", "create", email, "--password-file", "-"); err != nil {
		return err
	}
	if err := in.signIn(ctx); err != nil {
		return err
	}
	do := func(doc string, vars map[string]any) error { return in.query(ctx, "device-management", doc, vars, nil) }
	if err := do(`mutation{createDeviceProfile(request:{token:"p"}){token}}`, nil); err != nil {
		return err
	}
	for i := range rules {
		limit := ruleThreshold
		if i > 0 {
			limit = 1000 + i
		}
		def := fmt.Sprintf(`{"name":"rule %d","type":"threshold","severity":"major","when":{"metric":"temp","op":"gt","threshold":%d}}`, i, limit)
		if err := do(fmt.Sprintf(`mutation($d:String!){createDetectionRule(request:{token:"r%d",deviceProfileToken:"p",definition:$d,enabled:true}){token}}`, i),
			map[string]any{"d": def}); err != nil {
			return err
		}
	}
	if err := do(`mutation{createDeviceType(request:{token:"t",profileToken:"p"}){token}}`, nil); err != nil {
		return err
	}
	return do(`mutation{publishDeviceProfile(token:"p"){version}}`, nil)
}

func (in *instance) signIn(ctx context.Context) error {
	in.token = ""
	var login struct {
		Login struct{ IdentityToken string }
	}
	if err := in.query(ctx, "user-management", fmt.Sprintf(`mutation{login(email:%q,password:%q){identityToken}}`, email, password), nil, &login); err != nil {
		return err
	}
	var sel struct{ SelectTenant struct{ AccessToken string } }
	if err := in.query(ctx, "user-management", `mutation($t:String!,$i:String!){selectTenant(identityToken:$i,tenant:$t){accessToken}}`,
		map[string]any{"i": login.Login.IdentityToken, "t": tenant}, &sel); err != nil {
		return err
	}
	in.token = sel.SelectTenant.AccessToken
	return nil
}

// deviceToken is the token of the i-th device, from 0; the template counts from 1.
func deviceToken(i int) string { return fmt.Sprintf("d%05d", i+1) }

// accessToken is the secret of a device: as long as those that Weir mints.
func accessToken(i int) string { return fmt.Sprintf("%043d", i) }

// bulk is how many devices createDevices makes at once, and credentialsPer how many mutations a document may hold.
const (
	bulk           = 1000
	credentialsPer = 5
)

// devices makes so many devices with an access token each.
func (in *instance) devices(ctx context.Context, n int) error {
	for first := 0; first < n; first += bulk {
		if err := in.query(ctx, "device-management", `mutation($n:Int!,$s:Int!){createDevices(request:{deviceTypeToken:"t",count:$n,startIndex:$s,tokenTemplate:"d{n:05d}"}){token}}`,
			map[string]any{"n": min(bulk, n-first), "s": first + 1}, nil); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for first := 0; first < n; first += credentialsPer {
		g.Go(func() error { return in.credentials(ctx, first, min(credentialsPer, n-first)) })
	}
	return g.Wait()
}

func (in *instance) credentials(ctx context.Context, first, n int) error {
	var doc strings.Builder
	doc.WriteString("mutation{")
	for i := first; i < first+n; i++ {
		fmt.Fprintf(&doc, `c%d:createDeviceCredential(request:{token:"c%d",deviceToken:%q,credentialType:"ACCESS_TOKEN",credentialId:%q,enabled:true}){token}`,
			i, i, deviceToken(i), accessToken(i))
	}
	doc.WriteString("}")
	return in.query(ctx, "device-management", doc.String(), nil, nil)
}

// connect opens the connections of the first n devices.
func (in *instance) connect(ctx context.Context, n int, kind bodyKind) ([]*sender, error) {
	senders := make([]*sender, n)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(32)
	for i := range senders {
		g.Go(func() error {
			d := deviceToken(i)
			c, err := dialMQTT(gctx, in.mqtt, "weir:"+tenant+":"+d, tenant+":"+accessToken(i), "weir/"+tenant+"/devices/"+d+"/events")
			if err != nil {
				return err
			}
			senders[i] = &sender{client: c, body: newBody(kind, uint64(i)), index: i, of: n}
			return nil
		})
	}
	return senders, g.Wait()
}

// ready starts an instance with n devices that are judged by so many rules.
func (b *bench) ready(ctx context.Context, extra string, n, rules int) (*instance, error) {
	in, err := b.fresh(ctx, extra)
	if err != nil {
		return nil, err
	}
	if err := in.furnish(ctx, rules); err != nil {
		in.drop()
		return nil, err
	}
	if err := in.devices(ctx, n); err != nil {
		in.drop()
		return nil, err
	}
	return in, nil
}
