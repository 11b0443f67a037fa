package operate

import (
	"testing"

	"weir/internal/test/fixture"
	"weir/model"
)

func TestACommandOfWhatIsNoTextIsRefused(t *testing.T) {
	t.Parallel()
	const latin1 = "K\xfchlraum"
	for _, in := range []any{NewTenant{Token: "acme", Name: latin1}, GraphQLRequest{Variables: map[string]any{"r": []any{map[string]any{"name": latin1}}}},
		&DeviceImport{Rows: []DeviceRow{{Device: map[string]string{"name": latin1}}}}, map[string]string{latin1: ""}} {
		fixture.Refused(t, checkText(in), model.CodeInvalidInput, `"K\xfchlraum" is no text in UTF-8`)
	}
	if err := checkText(struct {
		Name *string
		Raw  []byte
	}{new("Kühlraum"), []byte(latin1)}); err != nil {
		t.Error(err)
	}
	_, err := CreateTenant.Ask(t.Context(), &Directory{}, NewTenant{Token: "acme", Name: latin1})
	fixture.Refused(t, err, model.CodeInvalidInput, "is no text in UTF-8")
}
