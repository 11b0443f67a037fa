package sqlite

import (
	"database/sql/driver"
	"strings"

	modernc "modernc.org/sqlite"
)

// fold(text) is the text with all letters in one case, for comparisons: lower() of SQLite knows A to Z only.
func init() {
	modernc.MustRegisterDeterministicScalarFunction("fold", 1, func(_ *modernc.FunctionContext, args []driver.Value) (driver.Value, error) {
		text, ok := args[0].(string)
		if !ok {
			return nil, nil
		}
		return strings.ToLower(strings.ToUpper(text)), nil
	})
}
