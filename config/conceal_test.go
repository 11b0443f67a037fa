package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is wrong with a configuration is written to the log of a start and of a reload.
func TestASecretUnderAMistypedKeyIsNotShown(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a mistyped key":        "auth:\n  service_secrt: hunter2\n  servicesecret_: hunter2\n  superuser_pasword: hunter2\n",
		"another section":       "auth:\n  \"service-secret\" : hunter2\nserviceSecret: hunter2\n",
		"a list":                "auth:\n  service_secret: [hunter2]\n",
		"a mapping on one line": "auth: {device_auth_mode: never, service_secret: hunter2}\n",
		"quotes without an end": "auth: {service_secret: \"hunter2\n",
		"a reserved character":  "auth:\n  service_secret: @hunter2\n",
		"a key of elsewhere":    "mqtt: {user: a, Password: hunter2}\n",
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "weir.yaml")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Load(Source{File: file})
			if err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

func TestALineWithoutASecretIsShownWhole(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "weir.yaml")
	const text = "auth:\n  access_token_ttl: soon\n  service_secret_file: /none\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(Source{File: file})
	if err == nil || !strings.Contains(err.Error(), "access_token_ttl: soon") || strings.Contains(err.Error(), "…") && !strings.Contains(err.Error(), "service_secret_file") {
		t.Errorf("got %v", err)
	}
}
