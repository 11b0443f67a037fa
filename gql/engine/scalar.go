package engine

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"

	"github.com/graphql-go/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"weir/model"
)

// leafShower returns the function that converts values of a scalar or enum for the response.
func leafShower(def *ast.Definition) (func(any) (any, error), error) {
	switch {
	case def.Kind == ast.Enum:
		return showEnum(def), nil
	case def.Name == "String":
		return showString, nil
	case def.Name == "ID":
		return showID, nil
	case def.Name == "Int":
		return showInt, nil
	case def.Name == "Float":
		return showFloat, nil
	case def.Name == "Boolean":
		return showBoolean, nil
	}
	return nil, fmt.Errorf("scalar %s is not supported", def.Name)
}

// leafType returns the executor's type of a scalar or enum. It converts outputs only: inputs never reach graphql-go. The
// names differ from the schema's because graphql-go requires its own String and Boolean.
func leafType(def *ast.Definition, show func(any) (any, error)) graphql.Output {
	return graphql.NewScalar(graphql.ScalarConfig{Name: "Leaf" + def.Name, Serialize: func(v any) any {
		shown, err := show(v)
		if err != nil {
			panic(err) // graphql-go turns it into an error of the field
		}
		return shown
	}})
}

// showString accepts strings, times (shown as RFC 3339 in UTC) and values with a String method.
func showString(v any) (any, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case *string:
		return pointee(v)
	case model.Micros:
		return v.String(), nil
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano), nil
	case *time.Time:
		if v == nil {
			return nil, nil
		}
		return v.UTC().Format(time.RFC3339Nano), nil
	}
	r := reflect.Indirect(reflect.ValueOf(v))
	switch {
	case !r.IsValid():
		return nil, nil
	case r.Type().Implements(stringerType):
		return r.Interface().(fmt.Stringer).String(), nil
	case r.Kind() == reflect.String:
		return r.String(), nil
	}
	return nil, fmt.Errorf("%T is no String", v)
}

func pointee[T any](p *T) (any, error) {
	if p == nil {
		return nil, nil
	}
	return *p, nil
}

// showID accepts what showString accepts, and integers.
func showID(v any) (any, error) {
	if n, ok := v.(int64); ok {
		return strconv.FormatInt(n, 10), nil
	}
	r := reflect.Indirect(reflect.ValueOf(v))
	switch {
	case !r.IsValid():
		return nil, nil
	case r.CanInt():
		return strconv.FormatInt(r.Int(), 10), nil
	case r.CanUint():
		return strconv.FormatUint(r.Uint(), 10), nil
	}
	return showString(v)
}

// showInt clamps to 32 bits, the range of Int.
func showInt(v any) (any, error) {
	r := reflect.Indirect(reflect.ValueOf(v))
	switch {
	case !r.IsValid():
		return nil, nil
	case r.CanInt():
		return int(min(max(r.Int(), math.MinInt32), math.MaxInt32)), nil
	case r.CanUint():
		return int(min(r.Uint(), math.MaxInt32)), nil
	}
	return nil, fmt.Errorf("%T is no Int", v)
}

// showFloat shows NaN and infinities as null, for JSON has no such numbers.
func showFloat(v any) (any, error) {
	f, ok := v.(float64)
	if !ok {
		r := reflect.Indirect(reflect.ValueOf(v))
		switch {
		case !r.IsValid():
			return nil, nil
		case r.CanFloat():
			f = r.Float()
		case r.CanInt():
			f = float64(r.Int())
		case r.CanUint():
			f = float64(r.Uint())
		default:
			return nil, fmt.Errorf("%T is no Float", v)
		}
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, nil
	}
	return f, nil
}

func showBoolean(v any) (any, error) {
	r := reflect.Indirect(reflect.ValueOf(v))
	switch {
	case !r.IsValid():
		return nil, nil
	case r.Kind() == reflect.Bool:
		return r.Bool(), nil
	}
	return nil, fmt.Errorf("%T is no Boolean", v)
}

func showEnum(def *ast.Definition) func(any) (any, error) {
	return func(v any) (any, error) {
		s, err := showString(v)
		if name, ok := s.(string); ok && def.EnumValues.ForName(name) == nil {
			return nil, fmt.Errorf("%q is no value of enum %s", name, def.Name)
		}
		return s, err
	}
}
