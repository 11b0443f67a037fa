package content

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of a definition file.
const (
	MaxDefinition  = 1 << 20 // bytes
	maxDefined     = 64      // objects
	maxResources   = 2048    // of an object
	maxDefinedName = 128     // characters
	maxXMLDepth    = 16
)

// Definition is an object as a definition file describes it (OMA-TS-LightweightM2M, LWM2M.xsd).
type Definition struct {
	ID        uint16
	Name      string
	Version   string // "" is 1.0
	Resources map[uint16]Resource
}

// Resource is a resource of a Definition.
type Resource struct {
	Name     string
	Kind     Kind // None for one that is executed
	Multiple bool
}

// definitionFile is the form of a definition file, as far as it counts.
type definitionFile struct {
	XMLName xml.Name           `xml:"LWM2M"`
	Objects []objectDefinition `xml:"Object"`
}

type objectDefinition struct {
	Name    string               `xml:"Name"`
	ID      string               `xml:"ObjectID"`
	Version string               `xml:"ObjectVersion"`
	Items   []resourceDefinition `xml:"Resources>Item"`
}

type resourceDefinition struct {
	ID       string `xml:"ID,attr"`
	Name     string `xml:"Name"`
	Multiple string `xml:"MultipleInstances"`
	Type     string `xml:"Type"`
}

// kindNames are the types of definition files. Core links are texts.
var kindNames = map[string]Kind{"": None, "String": String, "Integer": Integer, "Unsigned Integer": Unsigned, "Float": Float, "Boolean": Boolean, "Opaque": Bytes, "Time": Time, "Objlnk": Link,
	"Corelnk": String}

// ErrDefinition says that a file is no definition of objects. Errors of ParseDefinitions wrap it.
var ErrDefinition = errors.New("no definition of LwM2M objects")

func badDefinition(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDefinition, fmt.Sprintf(format, args...))
}

// ParseDefinitions reads a definition file: XML as the OMA registry has it, one object or several, at most MaxDefinition bytes. Nothing that a file
// refers to is read: entities other than those of XML itself are refused.
func ParseDefinitions(b []byte) ([]Definition, error) {
	if len(b) > MaxDefinition {
		return nil, badDefinition("it has %d bytes, %d is the maximum", len(b), MaxDefinition)
	}
	if err := checkDepth(b); err != nil {
		return nil, err
	}
	var file definitionFile
	d := xml.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&file); err != nil {
		return nil, badDefinition("%v", err)
	}
	if len(file.Objects) == 0 || len(file.Objects) > maxDefined {
		return nil, badDefinition("it describes %d objects, 1 to %d are wanted", len(file.Objects), maxDefined)
	}
	all := make([]Definition, 0, len(file.Objects))
	seen := map[uint16]bool{}
	for i := range file.Objects {
		object, err := file.Objects[i].definition()
		if err != nil {
			return nil, err
		}
		if seen[object.ID] {
			return nil, badDefinition("object %d is there twice", object.ID)
		}
		seen[object.ID] = true
		all = append(all, object)
	}
	return all, nil
}

// checkDepth refuses a file that is nested deeper than any definition, before anything is made of it.
func checkDepth(b []byte) error {
	d := xml.NewDecoder(bytes.NewReader(b))
	for depth := 0; ; {
		token, err := d.RawToken()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return badDefinition("%v", err)
		}
		switch token.(type) {
		case xml.StartElement:
			depth++
		case xml.EndElement:
			depth--
		}
		if depth > maxXMLDepth {
			return badDefinition("it is nested too deeply")
		}
	}
}

func (o *objectDefinition) definition() (d Definition, err error) {
	name, ok := definedName(o.Name)
	if !ok {
		return d, badDefinition("an object has no name of 1 to %d characters", maxDefinedName)
	}
	d = Definition{Name: name, Version: strings.TrimSpace(o.Version), Resources: map[uint16]Resource{}}
	if d.ID, err = number16(o.ID); err != nil {
		return d, badDefinition("%s: the ObjectID %.20q is no number up to 65534", name, o.ID)
	}
	if len(d.Version) > 8 || strings.Trim(d.Version, "0123456789.") != "" {
		return d, badDefinition("%s: the ObjectVersion %.20q is no version", name, o.Version)
	}
	if len(o.Items) > maxResources {
		return d, badDefinition("%s has more than %d resources", name, maxResources)
	}
	for i := range o.Items {
		item := &o.Items[i]
		id, err := number16(item.ID)
		if err != nil {
			return d, badDefinition("%s: %.20q is no ID of a resource", name, item.ID)
		}
		title, ok := definedName(item.Name)
		kind, known := kindNames[strings.TrimSpace(item.Type)]
		_, twice := d.Resources[id]
		switch {
		case !ok:
			return d, badDefinition("%s: resource %d has no name of 1 to %d characters", name, id, maxDefinedName)
		case !known:
			return d, badDefinition("%s: resource %d has the unknown type %.40q", name, id, item.Type)
		case twice:
			return d, badDefinition("%s: resource %d is there twice", name, id)
		}
		d.Resources[id] = Resource{Name: title, Kind: kind, Multiple: strings.TrimSpace(item.Multiple) == "Multiple"}
	}
	return d, nil
}

func number16(s string) (uint16, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 16)
	if err == nil && n == none {
		err = strconv.ErrRange
	}
	return uint16(n), err
}

// none is the number that no object and no resource has.
const none = 65535

func definedName(s string) (string, bool) {
	s = strings.Join(strings.Fields(s), " ")
	return s, s != "" && utf8.RuneCountInString(s) <= maxDefinedName
}

// Models are objects besides those that are built in. Of two definitions of an object the later counts. nil knows what is built in alone.
type Models struct {
	objects  map[uint16]Definition
	declared map[string]Kind // by path of the resource
}

// NewModels returns the models of some definitions.
func NewModels(all []Definition) *Models {
	m := &Models{objects: map[uint16]Definition{}}
	for _, d := range all {
		m.objects[d.ID] = d
	}
	return m
}

// With returns the models together with types of resources that somebody declares, by path (/32769/0/1). They count where no definition says otherwise; a value
// that is none of its declared type is decoded as one of unknown type.
func (m *Models) With(declared map[string]Kind) *Models {
	if len(declared) == 0 {
		return m
	}
	all := &Models{declared: declared}
	if m != nil {
		all.objects = m.objects
	}
	return all
}

// Len is how many objects are defined.
func (m *Models) Len() int {
	if m == nil {
		return 0
	}
	return len(m.objects)
}

// KindOf returns the type of the resource at a path, None for one that is not known.
func (m *Models) KindOf(p Path) Kind {
	kind, _ := m.kindOf(p)
	return kind
}

// kindOf is KindOf; declared says that no definition has the resource.
func (m *Models) kindOf(p Path) (kind Kind, declared bool) {
	if m == nil || len(p) < 3 {
		return KindOf(p), false
	}
	if r, ok := m.objects[p[0]].Resources[p[2]]; ok {
		return r.Kind, false
	}
	if kind = KindOf(p); kind != None || m.declared == nil {
		return kind, false
	}
	kind, declared = m.declared[p[:3].String()]
	return kind, declared
}

// Multiple reports whether a resource has instances.
func (m *Models) Multiple(p Path) bool {
	if m != nil && len(p) >= 3 {
		if r, ok := m.objects[p[0]].Resources[p[2]]; ok {
			return r.Multiple
		}
	}
	return Multiple(p)
}
