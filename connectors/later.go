package connectors

// A type that is recognised and not delivered to: a connector of it is refused, never accepted and inert.

// The names of the type that is recognised and has no delivery.
const (
	pubsubName  = "cloud_pubsub"
	pubsubAlias = "gcp_pubsub"
)

func pubsubType() *Type {
	return &Type{Name: pubsubName, Summary: "Recognised, without a delivery.", Refused: "have no delivery"}
}
