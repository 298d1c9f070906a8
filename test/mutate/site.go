// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// The kinds of mutations.
const (
	condition = "condition" // negated
	boundary  = "boundary"  // of a comparison: < becomes <=
	statement = "statement" // dropped
	constant  = "constant"  // changed
)

// identity is what a mutation is known by from one commit to the next: neither the line nor the file.
type identity struct {
	Package    string `json:"package"`
	Function   string `json:"function"`
	Kind       string `json:"kind"`
	Text       string `json:"text"`       // of the code that is changed
	Occurrence int    `json:"occurrence"` // among those of this kind and text in the function, from 1
}

func (i identity) String() string {
	text := fmt.Sprintf("%s %s: %s: %s", i.Package, i.Function, i.Kind, i.Text)
	if i.Occurrence > 1 {
		text += fmt.Sprintf(" (%d)", i.Occurrence)
	}
	return text
}

// site is a place in the code with a mutation, and its result so far.
type site struct {
	result
	path   string // of the file, absolute
	number int    // in the sample: what the environment names
	edits  []edit
}

// edit is a change of the text of a file. The number of the site replaces the word SITE.
type edit struct {
	at, cut int // offset, and the number of bytes that are removed
	text    string
	closes  bool // ends an expression or statement that an earlier edit of the site has begun
}

// longest is the number of bytes of a text that a mutation is known by.
const longest = 100

// abridge returns a text on one line, of which a mutation is known by the beginning.
func abridge(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}
