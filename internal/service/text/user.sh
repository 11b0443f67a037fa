# The user and the group {{user}}, where they are missing. A system without the tools for it has them written into its files;
# IPKG_INSTROOT is set while an image is put together, and then the files below it are meant.
root=${IPKG_INSTROOT:-}
if ! grep -q '^{{user}}:' "$root/etc/group"; then
	if [ -z "$root" ] && command -v groupadd >/dev/null; then
		groupadd --system {{user}}
	elif [ -z "$root" ] && command -v addgroup >/dev/null; then
		addgroup -S {{user}}
	else
		gid=980
		while grep -q "^[^:]*:[^:]*:$gid:" "$root/etc/group"; do gid=$((gid - 1)); done
		echo "{{user}}:x:$gid:" >>"$root/etc/group"
	fi
fi
if ! grep -q '^{{user}}:' "$root/etc/passwd"; then
	if [ -z "$root" ] && command -v useradd >/dev/null; then
		useradd --system --gid {{user}} --no-create-home --home-dir {{data}} --shell /usr/sbin/nologin --comment Weir {{user}}
	elif [ -z "$root" ] && command -v adduser >/dev/null; then
		adduser -S -D -H -h {{data}} -s /sbin/nologin -G {{user}} -g Weir {{user}}
	else
		uid=980
		while grep -q "^[^:]*:[^:]*:$uid:" "$root/etc/passwd"; do uid=$((uid - 1)); done
		gid=$(sed -n 's/^{{user}}:[^:]*:\([0-9]*\):.*/\1/p' "$root/etc/group")
		echo "{{user}}:x:$uid:$gid:Weir:{{data}}:/bin/false" >>"$root/etc/passwd"
		[ ! -f "$root/etc/shadow" ] || echo "{{user}}:*:0:0:99999:7:::" >>"$root/etc/shadow"
	fi
fi
