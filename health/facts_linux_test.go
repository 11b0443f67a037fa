package health

import "testing"

func TestAMountIsReportedWithoutSecretsOfItsOptions(t *testing.T) {
	t.Parallel()
	const mounts = `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /var/lib rw,relatime,credentials=/root/x - cifs //nas/share rw,username=u,password=secret
31 22 0:27 / /var/library rw - tmpfs tmpfs rw
`
	for path, want := range map[string]string{"/var/lib/weir": "cifs on /var/lib (rw,relatime)", "/var/lib": "cifs on /var/lib (rw,relatime)",
		"/var/library/x": "tmpfs on /var/library (rw)", "/home": "ext4 on / (rw,relatime)"} {
		if got := mountOf(mounts, path); got != want {
			t.Errorf("%s: %q, not %q", path, got, want)
		}
	}
	if got := mountOf("", "/"); got != "unknown" {
		t.Error(got)
	}
}
