# The user and the group {{.User}}, where they are missing. A system without the tools for it has them written into its files;
# IPKG_INSTROOT is set while an image is put together, and then the files below it are meant.
root=${IPKG_INSTROOT:-}
if ! grep -q '^{{.User}}:' "$root/etc/group"; then
	if [ -z "$root" ] && command -v groupadd >/dev/null; then
		groupadd --system {{.User}}
	elif [ -z "$root" ] && command -v addgroup >/dev/null; then
		addgroup -S {{.User}}
	else
		gid=980
		while grep -q "^[^:]*:[^:]*:$gid:" "$root/etc/group"; do gid=$((gid - 1)); done
		echo "{{.User}}:x:$gid:" >>"$root/etc/group"
	fi
fi
if ! grep -q '^{{.User}}:' "$root/etc/passwd"; then
	if [ -z "$root" ] && command -v useradd >/dev/null; then
		useradd --system --gid {{.User}} --no-create-home --home-dir {{.Data}} --shell /usr/sbin/nologin --comment Weir {{.User}}
	elif [ -z "$root" ] && command -v adduser >/dev/null; then
		adduser -S -D -H -h {{.Data}} -s /sbin/nologin -G {{.User}} -g Weir {{.User}}
	else
		uid=980
		while grep -q "^[^:]*:[^:]*:$uid:" "$root/etc/passwd"; do uid=$((uid - 1)); done
		gid=$(sed -n 's/^{{.User}}:[^:]*:\([0-9]*\):.*/\1/p' "$root/etc/group")
		echo "{{.User}}:x:$uid:$gid:Weir:{{.Data}}:/bin/false" >>"$root/etc/passwd"
		[ ! -f "$root/etc/shadow" ] || echo "{{.User}}:*:0:0:99999:7:::" >>"$root/etc/shadow"
	fi
fi
