package main

import (
	"encoding/json"
	"fmt"
	"io"
)

// output is the flag -o: for people or for programs.
type output string

const (
	asTable output = "table"
	asJSON  output = "json"
)

const outputUsage = "table, or json"

// String implements pflag.Value.
func (o *output) String() string { return string(*o) }

// Set implements pflag.Value.
func (o *output) Set(s string) error {
	switch output(s) {
	case asTable, asJSON:
		*o = output(s)
		return nil
	default:
		return fmt.Errorf("want %s or %s", asTable, asJSON)
	}
}

// Type implements pflag.Value.
func (o *output) Type() string { return "FORMAT" }

func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}
