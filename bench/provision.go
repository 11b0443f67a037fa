package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
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
		limit := ruleLimit(i)
		if in.limit != nil {
			limit = in.limit(i)
		}
		def := fmt.Sprintf(`{"name":"rule %d","type":"threshold","severity":"major","when":{"metric":"temp","op":"gt","threshold":%g}}`, i, limit)
		if in.define != nil {
			def = in.define(i)
		}
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

func (in *instance) signIn(ctx context.Context) error { return in.signInTo(ctx, tenant) }

func (in *instance) signInTo(ctx context.Context, tenant string) error {
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

// makeDevices makes so many devices with an access token each, in one site file.
func (in *instance) makeDevices(ctx context.Context, n int) error {
	var fleet strings.Builder
	fleet.WriteString("token,accessToken\n")
	for i := range n {
		fmt.Fprintf(&fleet, "%s,%s\n", deviceToken(i), accessToken(i))
	}
	site := filepath.Join(in.dir, "devices.yaml")
	if err := errors.Join(os.WriteFile(filepath.Join(in.dir, "devices.csv"), []byte(fleet.String()), 0o600),
		os.WriteFile(site, []byte("version: 1\ntenants: [{token: "+tenant+", devicesFrom: [{file: devices.csv, deviceTypeToken: t}]}]\n"), 0o600)); err != nil {
		return err
	}
	return in.run(ctx, "", "site", "apply", site)
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

// ready starts an instance that is furnished for its devices.
func (b *bench) ready(ctx context.Context, s setup) (*instance, error) {
	in, err := b.fresh(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := in.furnish(ctx, s.rules); err != nil {
		in.drop()
		return nil, err
	}
	if err := in.makeDevices(ctx, s.devices); err != nil {
		in.drop()
		return nil, err
	}
	return in, nil
}
