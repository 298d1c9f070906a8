// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"bytes"
	"strings"
	"testing"
)

func TestReadVPD(t *testing.T) {
	t.Parallel()
	const name = "\x82\x02\x00CX"
	for _, c := range []struct {
		name, vpd string
		want      VPD
	}{
		{"both", name + "\x90\x0b\x00V3\x01aSN\x03b \x00\x78", VPD{V3: "a", SN: "b"}},
		{"V3 in another keyword", name + "\x90\x0c\x00VA\x04V3\x01xV3\x01a\x78", VPD{V3: "a"}},
		{"a field", "\x90\x15\x00VA\x12A=B:SMDL=SW_MNG:C\x78", VPD{ManagesNVSwitches: true}},
		{"part of a field", "\x90\x10\x00VA\x0dXSMDL=SW_MNGX\x78", VPD{}},
		{"cut before the end tag", name + "\x90\x04\x00V3\x01a", VPD{V3: "a"}},
		{"only the name", name + "\x78", VPD{}},
		{"a keyword too long", "\x90\x08\x00SN\x01bV3\x02a\x78", VPD{SN: "b"}},
		{"a resource too long", "\x90\x08\x00V3\x01a\x78", VPD{}},
		{"a small resource first", "\x40\x90\x04\x00V3\x01a\x78", VPD{}},
		{"removed", strings.Repeat("\xff", 64), VPD{}},
		{"nothing", "", VPD{}},
		{"cut in the head", "\x90\x03", VPD{}},
		{"an empty keyword", "\x90\x03\x00V3\x00", VPD{}},
		{"cut in a keyword", "\x90\x01\x00V3\x01a", VPD{}},
	} {
		if got := findKeywords([]byte(c.vpd)); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestVPDBytes(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300)
	for _, c := range []struct{ given, want VPD }{
		{VPD{}, VPD{}},
		{VPD{V3: "a"}, VPD{V3: "a"}},
		{VPD{SN: "b"}, VPD{SN: "b"}},
		{VPD{V3: "a", SN: "b"}, VPD{V3: "a", SN: "b"}},
		{VPD{V3: long, SN: long}, VPD{V3: long[:LongestKeyword], SN: long[:LongestKeyword]}},
	} {
		if got, err := ReadVPD(bytes.NewReader(c.given.Bytes())); got != c.want || err != nil {
			t.Errorf("%+v is read as %+v, %v", c.given, got, err)
		}
	}
}

// FuzzReadVPD: the keywords of any Vital Product Data survive Bytes.
func FuzzReadVPD(f *testing.F) {
	f.Add([]byte("\x82\x02\x00CX\x90\x0b\x00V3\x01aSN\x03b \x00\x78"))
	f.Fuzz(func(t *testing.T, content []byte) {
		v := findKeywords(content)
		if again := findKeywords(v.Bytes()); again != v {
			t.Errorf("%+v is read as %+v", v, again)
		}
	})
}
