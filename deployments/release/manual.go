// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
)

var command = regexp.MustCompile(`(?m)^  ([a-z]+) {2,}\S`)

// manual returns the manual page of tandem: the help texts of the program and of its commands.
func (r release) manual(tandem string) ([]byte, error) {
	help, err := output(tandem, "--help")
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	fmt.Fprintf(&page, ".TH TANDEM 1 %q %q\n", r.made.Format("2006-01-02"), "Tandem "+r.version)
	page.WriteString(".SH NAME\ntandem \\- show, record and plan GPUs and RDMA VFs on the same PCIe switch\n")
	section(&page, "DESCRIPTION", help)
	_, list, _ := bytes.Cut(help, []byte("Available Commands:\n"))
	list, _, _ = bytes.Cut(list, []byte("\n\n"))
	for _, found := range command.FindAllSubmatch(list, -1) {
		name := string(found[1])
		text, err := output(tandem, name, "--help")
		if err != nil {
			return nil, err
		}
		section(&page, "tandem "+name, text)
	}
	return page.Bytes(), nil
}

var roff = strings.NewReplacer(`\`, `\e`, "-", `\-`)

// section adds a text unchanged. A zero-width character protects lines that roff would take for requests.
func section(page *bytes.Buffer, title string, text []byte) {
	fmt.Fprintf(page, ".SH %q\n.nf\n", strings.ToUpper(title))
	for line := range strings.Lines(strings.TrimSpace(string(text)) + "\n") {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			page.WriteString(`\&`)
		}
		page.WriteString(roff.Replace(line))
	}
	page.WriteString(".fi\n")
}
