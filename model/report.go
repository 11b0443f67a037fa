package model

// MaxReported is the maximum number of attributes in one device report, on every transport.
const MaxReported = 64

// Report is a device report: attributes of the device that it sets or removes.
type Report struct{ Attributes []Reported }

// Reported is one attribute of a report. Value is its text; of ReportedNull, which removes the attribute, it is "".
type Reported struct {
	Key   string
	Type  ReportedType
	Value string
}

// ReportedType is the type of a reported value. The numbers are frozen.
type ReportedType uint8

// The types of reported values.
const (
	ReportedNull    ReportedType = 0 // removes the attribute
	ReportedString  ReportedType = 1
	ReportedLong    ReportedType = 2 // a whole number of 64 bits
	ReportedDouble  ReportedType = 3
	ReportedBoolean ReportedType = 4
	ReportedJSON    ReportedType = 5 // an object or an array
)

var reportedTypeNames = [...]string{"null", "STRING", "LONG", "DOUBLE", "BOOLEAN", "JSON"}

// String returns the name of the type as the API has it.
func (t ReportedType) String() string {
	if int(t) < len(reportedTypeNames) {
		return reportedTypeNames[t]
	}
	return "ReportedType(?)"
}
