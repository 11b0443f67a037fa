package model

// Response is what a device answers to a command.
type Response struct {
	Command string // token of the command
	Nonce   string // of the dispatch that it answers; "" when the device sent none
	Success bool
	Payload string // a JSON text; "" for none
	Error   string // "" unless Success is false
}
