//go:build gateway

package build

// Gateway reports whether the program was built for gateways, with the tag gateway: smaller, without the parts that such a machine hardly
// needs.
const Gateway = true
