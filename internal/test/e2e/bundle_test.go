package e2e_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/test/testweir"
)

// A bundle is sent to somebody else. Secrets are planted wherever an instance can hold one, and so are things that only
// devices know; none of them is in any file of a bundle: of the running instance, of one that was killed, of one whose
// configuration does not load.
func TestABundleHoldsNoSecret(t *testing.T) {
	t.Parallel()
	planted := map[string]string{
		"password in the file":       "planted-superuser-password",
		"secret in the environment":  "planted-service-secret-of-more-than-32-bytes",
		"password of an admin":       testweir.Password,
		"credential in a body":       "planted-credential-in-a-body",
		"payload that was refused":   "planted-payload-that-does-not-read",
		"metric of a stranger":       "planted_metric",
		"alternate id of a reading":  "planted-alternate-id",
		"password over MQTT":         "planted-mqtt-password",
		"token in a query":           "planted-token-in-a-query",
		"name that only devices say": "planted-device-name",
		"secret of a mistyped key":   "planted-secret-of-a-mistyped-key",
	}
	w := start(t, testweir.Options{
		Config: "auth: {superuser_email: root@example.org, superuser_password: " + planted["password in the file"] + "}\n",
		Env:    []string{"WEIR_AUTH_SERVICE_SECRET=" + planted["secret in the environment"]},
	})
	tn := w.tenant(t, "acme")
	planted["access token of the API"], planted["identity token"] = tn.token, w.identity
	var device struct{ AccessToken string }
	w.RunJSON(&device, "device", "add", "acme", "boiler-1")
	planted["access token of a device"] = device.AccessToken
	key, err := os.ReadFile(filepath.Join(w.Dir, "data", "root.key"))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(key)))
	if err != nil {
		t.Fatal(err)
	}
	planted["root key"], planted["root key, raw"], planted["root key in hex"] = strings.TrimSpace(string(key)), string(raw), hex.EncodeToString(raw)

	for body, want := range map[string]int{
		`{"device":"boiler-1","credentialType":"ACCESS_TOKEN","credentialId":"` + device.AccessToken + `","altId":"` + planted["alternate id of a reading"] +
			`","eventType":"Measurement","payload":{"entries":[{"measurements":{"planted_metric":"815.4711"}}]}}`: http.StatusAccepted,
		`{"device":"boiler-1","credentialType":"ACCESS_TOKEN","credentialId":"` + planted["credential in a body"] +
			`","eventType":"Measurement","payload":{"entries":[{"measurements":{"planted_metric":"1"}}]}}`: http.StatusAccepted,
		`{"device":"` + planted["name that only devices say"] + `","eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"1"}}]}}`: http.StatusAccepted,
		`{"` + planted["payload that was refused"] + `":`: http.StatusBadRequest,
	} {
		if resp := tn.post(body); resp.StatusCode != want {
			t.Errorf("%s: %s", body, resp.Status)
		}
	}
	planted["value of a reading"] = "815.4711"
	if c, err := testweir.DialMQTT(w.MQTT, "weir", "acme", "boiler-1", planted["password over MQTT"]); err == nil {
		_ = c.Close()
		t.Error("a wrong credential is let in")
	}
	w.ask(t, "device-management", planted["token in a query"], `{__typename}`, nil)
	tn.plain("marker")
	planted["credential of a device"] = tn.secret("marker")
	tn.applied("marker")

	bundled := func(name string) map[string][]byte {
		file := filepath.Join(w.Dir, name+".tar.gz")
		w.Run("", "bundle", "-o", file)
		return unpack(t, file)
	}
	running := bundled("running")
	clean(t, "running", running, planted)
	for _, name := range []string{"version.json", "config.json", "doctor.json", "status.json", "ledger.json", "dead-letters.json", "metrics.txt",
		"goroutines.txt", "heap.pprof", "files.txt", "system.txt", "CONTENTS.txt"} {
		if len(running[name]) == 0 {
			t.Errorf("%s is missing or empty", name)
		}
	}
	if s := string(running["config.json"]); !strings.Contains(s, `"auth.superuser_password",`) || !strings.Contains(s, `"(set)"`) || !strings.Contains(s, "root@example.org") {
		t.Errorf("the configuration is not told: %s", s)
	}
	if s := string(running["dead-letters.json"]); !strings.Contains(s, `"bad-credential"`) || !strings.Contains(s, `"undecodable"`) {
		t.Errorf("the reasons are not told: %s", s)
	}
	w.Kill()
	rest := bundled("rest")
	clean(t, "rest", rest, planted)
	var report struct {
		Running  bool
		Findings []struct{ ID string }
	}
	if err := json.Unmarshal(rest["doctor.json"], &report); err != nil || report.Running || len(report.Findings) < 15 {
		t.Errorf("%v, %+v", err, report)
	}
	text, err := os.ReadFile(w.Config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.Config, append(text, "secretz: {pasword: "+planted["secret of a mistyped key"]+"}\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := bundled("broken")
	clean(t, "broken", broken, planted)
	if !strings.Contains(string(broken["config.txt"]), "secretz: is not a key") {
		t.Errorf("%s", broken["config.txt"])
	}
}

// unpack reads an archive; what is packed again inside it is unpacked, too.
func unpack(t *testing.T, file string) map[string][]byte {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(gunzip(t, b))); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.HasPrefix(body, []byte("\x1f\x8b")) {
			body = gunzip(t, body)
		}
		files[filepath.Base(h.Name)] = body
	}
}

func gunzip(t *testing.T, b []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func clean(t *testing.T, which string, files map[string][]byte, planted map[string]string) {
	t.Helper()
	if len(files) < 2 {
		t.Errorf("%s: %d files", which, len(files))
	}
	for name, body := range files {
		for what, secret := range planted {
			if len(secret) < 8 {
				t.Fatalf("%s: %q proves nothing", what, secret)
			}
			for form, s := range map[string]string{"": secret, ", in base64": base64.StdEncoding.EncodeToString([]byte(secret)), ", in hex": hex.EncodeToString([]byte(secret))} {
				if bytes.Contains(body, []byte(s)) {
					t.Errorf("%s: %s holds the %s%s", which, name, what, form)
				}
			}
		}
	}
}
