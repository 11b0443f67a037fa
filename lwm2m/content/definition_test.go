package content

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

const valve = `<?xml version="1.0" encoding="UTF-8"?>
<LWM2M xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:noNamespaceSchemaLocation="http://www.openmobilealliance.org/tech/profiles/LWM2M.xsd">
  <Object ObjectType="MODefinition">
    <Name>Valve &amp;
      actuator</Name>
    <ObjectID>32769</ObjectID>
    <ObjectURN>urn:oma:lwm2m:x:32769</ObjectURN>
    <LWM2MVersion>1.0</LWM2MVersion>
    <ObjectVersion>1.1</ObjectVersion>
    <MultipleInstances>Multiple</MultipleInstances>
    <Resources>
      <Item ID="1"><Name>Position</Name><Operations>RW</Operations><MultipleInstances>Single</MultipleInstances><Type>Float</Type></Item>
      <Item ID="2"><Name>Close</Name><Operations>E</Operations><MultipleInstances>Single</MultipleInstances><Type></Type></Item>
      <Item ID="3"><Name>Counts</Name><Operations>R</Operations><MultipleInstances>Multiple</MultipleInstances><Type>Unsigned Integer</Type></Item>
    </Resources>
  </Object>
</LWM2M>`

// TestADefinition of an object gives its resources their types, in every format that names none.
func TestADefinition(t *testing.T) {
	t.Parallel()
	all, err := ParseDefinitions([]byte(valve))
	if err != nil || len(all) != 1 || all[0].ID != 32769 || all[0].Name != "Valve & actuator" || all[0].Version != "1.1" || len(all[0].Resources) != 3 {
		t.Fatalf("%+v %v", all, err)
	}
	m := NewModels(all)
	if got := m.KindOf(Path{32769, 0, 1}); got != Float {
		t.Errorf("the type is %v", got)
	}
	if m.KindOf(Path{32769, 0, 2}) != None || !m.Multiple(Path{32769, 0, 3}) || m.Multiple(Path{32769, 0, 1}) || m.KindOf(Path{3303, 0, 5700}) != Float || m.Len() != 1 {
		t.Error("the types are others")
	}
	position := []byte{0xc4, 1, 0x41, 0xa8, 0, 0}
	records, err := m.Decode(TLV, Path{32769, 0}, position, 0)
	if err != nil || len(records) != 1 || records[0].Value.Kind != Float || records[0].Value.Float != 21 {
		t.Errorf("%+v %v", records, err)
	}
	if records, err := Decode(TLV, Path{32769, 0}, position, 0); err != nil || records[0].Value.Kind != Bytes {
		t.Errorf("without the definition: %+v %v", records, err)
	}
}

// TestWhatIsNoDefinition is refused with the reason.
func TestWhatIsNoDefinition(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ text, why string }{
		"nothing":                {"", "EOF"},
		"another document":       {"<html></html>", "LWM2M"},
		"no object":              {"<LWM2M></LWM2M>", "0 objects"},
		"an entity":              {`<!DOCTYPE l [<!ENTITY a "aaaa">]>` + strings.Replace(valve[38:], "Position", "&a;", 1), "entity"},
		"an external entity":     {`<!DOCTYPE l [<!ENTITY a SYSTEM "file:///etc/passwd">]>` + strings.Replace(valve[38:], "Position", "&a;", 1), "entity"},
		"deep nesting":           {strings.Repeat("<a>", 100) + strings.Repeat("</a>", 100), "deeply"},
		"a number that is none":  {strings.Replace(valve, "32769</ObjectID>", "x</ObjectID>", 1), "ObjectID"},
		"a number that is large": {strings.Replace(valve, `ID="1"`, `ID="65535"`, 1), "ID of a resource"},
		"an unknown type":        {strings.Replace(valve, "Float", "Double", 1), "unknown type"},
		"no name":                {strings.Replace(valve, "Position", " ", 1), "no name"},
		"a resource twice":       {strings.Replace(valve, `ID="2"`, `ID="1"`, 1), "twice"},
		"a version that is none": {strings.Replace(valve, "1.1</ObjectVersion>", "one</ObjectVersion>", 1), "version"},
		"too many bytes":         {valve + strings.Repeat(" ", MaxDefinition), "maximum"},
	} {
		_, err := ParseDefinitions([]byte(c.text))
		if !errors.Is(err, ErrDefinition) || !strings.Contains(fmt.Sprint(err), c.why) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestTheDefinitionOfAPeer: the file that the interoperability tests give their client is one.
func TestTheDefinitionOfAPeer(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../interop/leshan/3303.xml")
	if err != nil {
		t.Fatal(err)
	}
	all, err := ParseDefinitions(b)
	if err != nil || len(all) != 1 || all[0].ID != 3303 || all[0].Resources[5700].Kind != Float {
		t.Errorf("%+v %v", all, err)
	}
}

// FuzzParseDefinitions: no file makes the parser fail, and what it takes is within its bounds.
func FuzzParseDefinitions(f *testing.F) {
	f.Add([]byte(valve))
	f.Add([]byte("<LWM2M><Object><Name>a</Name><ObjectID>1</ObjectID></Object></LWM2M>"))
	f.Add([]byte(`<!DOCTYPE l [<!ENTITY a "&b;">]><LWM2M>&a;</LWM2M>`))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := ParseDefinitions(b)
		if err != nil {
			if !errors.Is(err, ErrDefinition) {
				t.Fatal(err)
			}
			return
		}
		for _, d := range all {
			if d.Name == "" || d.ID == none || len(d.Resources) > maxResources {
				t.Fatalf("%+v", d)
			}
		}
	})
}
