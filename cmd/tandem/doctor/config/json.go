package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// patchJSON keeps the order of keys as well, through the YAML that JSON is.
func patchJSON(content []byte, settings []Setting) ([]byte, error) {
	if !json.Valid(content) {
		return nil, errors.New("the configuration is no JSON")
	}
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		return nil, err
	}
	top := mapping(&document)
	if top == nil {
		return nil, errors.New("the configuration is no object")
	}
	for _, s := range settings {
		put(top, s.Key, s.Value)
	}
	var flat, out bytes.Buffer
	if err := writeNode(&flat, top); err != nil {
		return nil, err
	}
	if err := json.Indent(&out, flat.Bytes(), "", indentOf(content)); err != nil {
		return nil, err
	}
	if bytes.HasSuffix(content, []byte("\n")) {
		out.WriteByte('\n')
	}
	return out.Bytes(), nil
}

// put sets a key of an object.
func put(object *yaml.Node, key string, value any) {
	existing, _ := lookup(object, key)
	fields, nested := value.(map[string]string)
	if existing == nil {
		existing = &yaml.Node{}
		object.Content = append(object.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key},
			existing)
	}
	if !nested {
		*existing = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: fmt.Sprint(value)}
		return
	}
	if existing.Kind != yaml.MappingNode {
		*existing = yaml.Node{Kind: yaml.MappingNode}
	}
	for _, name := range sorted(fields) {
		put(existing, name, fields[name])
	}
}

// writeNode writes JSON.
func writeNode(out *bytes.Buffer, n *yaml.Node) error {
	switch n.Kind {
	case yaml.MappingNode:
		out.WriteByte('{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				out.WriteByte(',')
			}
			name, err := json.Marshal(n.Content[i].Value)
			if err != nil {
				return err
			}
			out.Write(append(name, ':'))
			if err := writeNode(out, n.Content[i+1]); err != nil {
				return err
			}
		}
		out.WriteByte('}')
	case yaml.SequenceNode:
		out.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				out.WriteByte(',')
			}
			if err := writeNode(out, item); err != nil {
				return err
			}
		}
		out.WriteByte(']')
	default:
		if n.Tag != "!!str" {
			out.WriteString(n.Value) // a number, true, false or null as it was written
			return nil
		}
		text, err := json.Marshal(n.Value)
		if err != nil {
			return err
		}
		out.Write(text)
	}
	return nil
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
