#!/bin/sh
# Writes the list of devices with an access token for each: tokens.sh fleet.csv > fleet-with-tokens.csv
# What it writes holds secrets: run it under umask 077.
set -eu
while IFS= read -r line; do
  case $line in
  token,*) printf '%s,accessToken\n' "$line" ;;
  *) printf '%s,%s\n' "$line" "$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')" ;;
  esac
done < "$1"
