"""Reads mails with Python's email package and compares: mails.py GALLERY DIRECTORY. Prints each difference, and ends with 1 for one."""
import email
import email.policy
import glob
import json
import sys

gallery, directory = sys.argv[1:]
samples = json.load(open(gallery, encoding="utf-8"))
paths = sorted(glob.glob(directory + "/*.eml"))
wrong = 0


def differ(name, what, got, want):
    global wrong
    if got != want:
        wrong += 1
        print("%s: %s\n  got  %.300r\n  want %.300r" % (name, what, got, want))


differ("the gallery", "number of mails", len(paths), len(samples))
for path, sample in zip(paths, samples):
    mail = email.message_from_bytes(open(path, "rb").read(), policy=email.policy.default)
    name, message = sample["Name"], sample["Message"]
    differ(name, "subject", mail["subject"], sample["Subject"])
    differ(name, "text", mail.get_content().replace("\r\n", "\n"), sample["Text"])
    differ(name, "defects", [str(d) for d in mail.defects] + [str(d) for _, v in mail.items() for d in getattr(v, "defects", [])], [])
    differ(name, "from", [(a.display_name, a.addr_spec) for a in mail["from"].addresses], [("Wärme", "weir@example.com")])
    differ(name, "recipients", [a.addr_spec for a in mail["to"].addresses], open(path + ".to").read().split())
    differ(name, "headers", sorted(set(k.lower() for k in mail.keys()) - {"in-reply-to", "references"}),
           sorted(["date", "from", "to", "subject", "message-id", "auto-submitted", "mime-version", "content-type", "content-transfer-encoding"]))
    if name == "names of recipients":
        differ(name, "names", [a.display_name for a in mail["to"].addresses], ["Größe", 'Ops, "night"', "café", ""])
print("%d mails" % len(paths))
sys.exit(1 if wrong else 0)
