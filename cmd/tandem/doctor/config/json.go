package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// object is a JSON object that keeps the order of its keys, and its values as they were written.
type object []field

type field struct {
	key   string
	value json.RawMessage
}

func patchJSON(content []byte, settings []Setting) ([]byte, error) {
	if !json.Valid(content) {
		return nil, errors.New("the configuration is no JSON")
	}
	top := readObject(content)
	for _, s := range settings {
		top.put(s.Key, s.Value)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, top.write(), "", indentOf(content)); err != nil {
		return nil, err
	}
	if bytes.HasSuffix(content, []byte("\n")) {
		out.WriteByte('\n')
	}
	return out.Bytes(), nil
}

// readObject reads valid JSON; of anything but an object it is empty.
func readObject(content []byte) (o object) {
	d := json.NewDecoder(bytes.NewReader(content))
	if start, _ := d.Token(); start != json.Delim('{') {
		return nil
	}
	for d.More() {
		key, _ := d.Token()
		f := field{key: key.(string)}
		if d.Decode(&f.value) != nil {
			break // which valid JSON gives no reason for
		}
		o = append(o, f)
	}
	return o
}

// put sets a key: to a string, or of an object some keys.
func (o *object) put(key string, value any) {
	i := slices.IndexFunc(*o, func(f field) bool { return f.key == key })
	if i < 0 {
		i = len(*o)
		*o = append(*o, field{key: key})
	}
	fields, nested := value.(map[string]string)
	if !nested {
		(*o)[i].value = quote(fmt.Sprint(value))
		return
	}
	inner := readObject((*o)[i].value)
	for _, name := range sorted(fields) {
		inner.put(name, fields[name])
	}
	(*o)[i].value = inner.write()
}

func (o object) write() []byte {
	var parts [][]byte
	for _, f := range o {
		parts = append(parts, slices.Concat(quote(f.key), []byte(":"), f.value))
	}
	return slices.Concat([]byte("{"), bytes.Join(parts, []byte(",")), []byte("}"))
}

func quote(text string) []byte {
	quoted, _ := json.Marshal(text) // any string can be
	return quoted
}

// indentOf is the indentation of the first line that has one.
func indentOf(content []byte) string {
	for line := range strings.Lines(string(content)) {
		if trimmed := strings.TrimLeft(line, " \t"); trimmed != line && strings.TrimSpace(trimmed) != "" {
			return line[:len(line)-len(trimmed)]
		}
	}
	return "  "
}
