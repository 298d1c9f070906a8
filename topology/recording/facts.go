// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/tandem-k8s/tandem/topology"
)

// A machine file has the facts of a function's files config and vpd in words instead of the files' bytes:
//
//	config = ACS=0x001d ATS
//	vpd = V3=1 SN=2 NVSwitch
const (
	configFile = "config"
	vpdFile    = "vpd"
	neither    = "none"     // of ACS and ATS
	nvSwitch   = "NVSwitch" // the function manages NVSwitches
)

func configText(c topology.Capabilities) string {
	var words []string
	if c.ACS {
		words = append(words, fmt.Sprintf("ACS=%#04x", c.Control))
	}
	if c.ATS {
		words = append(words, "ATS")
	}
	return cmp.Or(strings.Join(words, " "), neither) + "\n"
}

func vpdText(v topology.VPD) string {
	var words []string
	if v.V3 != "" {
		words = append(words, "V3="+v.V3)
	}
	if v.SN != "" {
		words = append(words, "SN="+v.SN)
	}
	if v.ManagesNVSwitches {
		words = append(words, nvSwitch)
	}
	return strings.Join(words, " ") + "\n"
}

func parseConfig(text string) (c topology.Capabilities) {
	for word := range strings.FieldsSeq(text) {
		switch name, value, _ := strings.Cut(word, "="); name {
		case "ACS":
			control, _ := strconv.ParseUint(value, 0, 16) // compared with the text below
			c.ACS, c.Control = true, uint16(control)
		case "ATS":
			c.ATS = true
		}
	}
	return c
}

func parseVPD(text string) (v topology.VPD) {
	for word := range strings.FieldsSeq(text) {
		switch name, value, _ := strings.Cut(word, "="); name {
		case "V3":
			v.V3 = value
		case "SN":
			v.SN = value
		case nvSwitch:
			v.ManagesNVSwitches = true
		}
	}
	return v
}

// content returns the content of a file for readers. Facts in exactly the words of this package become bytes
// as in sysfs; any other text stays.
func (n *node) content() string {
	switch n.name {
	case configFile:
		if c := parseConfig(n.text); configText(c) == n.text {
			return string(c.Bytes())
		}
	case vpdFile:
		v := parseVPD(n.text)
		known := v != topology.VPD{} && max(len(v.V3), len(v.SN)) <= topology.LongestKeyword
		if known && vpdText(v) == n.text {
			return string(v.Bytes())
		}
	}
	return n.text
}

// facts records the facts of a function's files config and vpd, which take root. Both are slow to read and
// only recorded where they can tell something: config of ports and PFs, vpd of NVIDIA's PFs and DMA
// functions.
func (c *capture) facts(dir string) {
	text := func(file string) string {
		content, err := fs.ReadFile(c.sys, path.Join(dir, file))
		if err != nil {
			c.leave(path.Join(dir, file), err) // "" is of no kind below
		}
		return strings.TrimSpace(string(content))
	}
	class := text("class")
	_, err := fs.ReadLink(c.sys, path.Join(dir, "physfn"))
	isPF := strings.HasPrefix(class, "0x02") && errors.Is(err, fs.ErrNotExist)
	if isPF || strings.HasPrefix(class, "0x0604") {
		c.fact(path.Join(dir, configFile), c.config)
	}
	if isPF && text("vendor") == "0x15b3" {
		c.fact(path.Join(dir, vpdFile), c.vpd)
	}
}

// fact records one file in words, nothing for "".
func (c *capture) fact(name string, words func(fs.File) (string, error)) {
	file, err := c.sys.Open(name)
	if err != nil {
		c.leave(name, err)
		return
	}
	defer func() { _ = file.Close() }() // opened for reading
	text, err := words(file)
	if err == nil && text != "" {
		err = c.builder.add(name, &node{text: text})
	}
	c.keep(name, err)
}

func (c *capture) config(file fs.File) (string, error) {
	at, ok := file.(io.ReaderAt)
	if !ok {
		return "", errors.ErrUnsupported
	}
	facts, known := topology.ReadCapabilities(at)
	if !known {
		return "", fs.ErrPermission
	}
	return configText(facts), nil
}

func (c *capture) vpd(file fs.File) (string, error) {
	facts, err := topology.ReadVPD(file)
	if facts == (topology.VPD{}) {
		return "", err
	}
	facts.V3, facts.SN = c.scrub.keyword(facts.V3), c.scrub.keyword(facts.SN)
	return vpdText(facts), nil
}
