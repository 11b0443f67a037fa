package model

// Artifact is a file that devices are given, such as firmware. What it holds never changes: other bytes are another artifact.
type Artifact struct {
	ID        int64
	TenantID  int64
	CreatedAt Micros
	UpdatedAt Micros
	Token     string
	Name      string // "" for none
	Version   string // "" for none
	SHA256    string // of the bytes, 64 lower-case hexadecimal digits
	Bytes     int64
	Body      int64 // what its bytes are stored under
}
