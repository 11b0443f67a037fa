// Certs writes the certificates of the interoperability run into a directory.
package main

import (
	"fmt"
	"os"

	"weir/internal/test/testcerts"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: certs DIR")
		os.Exit(2)
	}
	if err := testcerts.WriteSet(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
