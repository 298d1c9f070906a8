package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Patch gives a kubelet configuration, YAML or JSON, these settings. Comments, the order of keys and all other keys stay as they are.
// What would say anything else than that is an error.
func Patch(content []byte, settings []Setting) ([]byte, error) {
	patch := patchYAML
	if trimmed := bytes.TrimSpace(content); len(trimmed) > 0 && trimmed[0] == '{' {
		patch = patchJSON
	}
	patched, err := patch(content, settings)
	if err != nil {
		return nil, err
	}
	if err := confirm(content, patched, settings); err != nil {
		return nil, err
	}
	return patched, nil
}

// confirm reads both configurations and checks that they differ in the settings alone. Lines of YAML can be more than they seem.
func confirm(before, after []byte, settings []Setting) error {
	var a, b map[string]any
	if err := errors.Join(yaml.Unmarshal(before, &a), yaml.Unmarshal(after, &b)); err != nil {
		return err
	}
	if a == nil {
		a = map[string]any{}
	}
	for _, s := range settings {
		fields, nested := s.Value.(map[string]string)
		if !nested {
			a[s.Key] = s.Value
			continue
		}
		options, ok := a[s.Key].(map[string]any)
		if !ok {
			options = map[string]any{}
		}
		for name, value := range fields {
			options[name] = value
		}
		a[s.Key] = options
	}
	if !reflect.DeepEqual(a, b) {
		return errors.New("it is written in a way that cannot be patched line by line: set the keys by hand")
	}
	return nil
}

// patchYAML changes lines, not the document: a document that is written anew loses the look that its owner gave it.
func patchYAML(content []byte, settings []Setting) ([]byte, error) {
	for _, s := range settings {
		var err error
		if content, err = setYAML(content, s.Key, s.Value); err != nil {
			return nil, fmt.Errorf("set %s: %w", s.Key, err)
		}
	}
	return content, nil
}

func setYAML(content []byte, key string, value any) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		return nil, err
	}
	lines := strings.SplitAfter(string(content), "\n")
	at := mapping(&document)
	if at == nil && strings.TrimSpace(string(content)) != "" && document.Kind != 0 {
		return nil, errors.New("the configuration is no object")
	}
	fields, nested := value.(map[string]string)
	existing, keyNode := lookup(at, key)
	switch {
	case existing == nil && nested:
		return appendLines(lines, key+":\n"+block(fields, "  ")), nil
	case existing == nil:
		return appendLines(lines, fmt.Sprintf("%s: %s\n", key, scalar(value))), nil
	case nested && existing.Kind == yaml.MappingNode && existing.Style&yaml.FlowStyle == 0 && len(existing.Content) > 0:
		return setFields(lines, existing, fields)
	case nested:
		return replaceFlow(lines, keyNode, existing, fields)
	case existing.Kind != yaml.ScalarNode:
		return nil, fmt.Errorf("line %d holds more than a value", existing.Line)
	default:
		return replaceScalar(lines, existing, scalar(value))
	}
}

// mapping is the top of the document, nil where it is empty.
func mapping(document *yaml.Node) *yaml.Node {
	if document.Kind == yaml.DocumentNode && len(document.Content) == 1 && document.Content[0].Kind == yaml.MappingNode {
		return document.Content[0]
	}
	return nil
}

func lookup(object *yaml.Node, key string) (value, name *yaml.Node) {
	if object == nil {
		return nil, nil
	}
	for i := 0; i+1 < len(object.Content); i += 2 {
		if object.Content[i].Value == key {
			return object.Content[i+1], object.Content[i]
		}
	}
	return nil, nil
}

// scalar writes a value so that YAML reads a string again: "true", "0,64" and "0" would be something else.
func scalar(value any) string {
	text := fmt.Sprint(value)
	var read any
	if err := yaml.Unmarshal([]byte(text), &read); err == nil && read == any(text) {
		return text
	}
	return strconv.Quote(text)
}

func sorted(fields map[string]string) []string { return slices.Sorted(maps.Keys(fields)) }

func block(fields map[string]string, indent string) string {
	var out strings.Builder
	for _, key := range sorted(fields) {
		fmt.Fprintf(&out, "%s%s: %s\n", indent, key, scalar(fields[key]))
	}
	return out.String()
}

// appendLines adds lines to the end of the document, before a line that ends it.
func appendLines(lines []string, text string) []byte {
	end := len(lines)
	for end > 0 {
		if line := strings.TrimSpace(lines[end-1]); line != "" && line != "..." {
			break
		}
		end--
	}
	head := strings.Join(lines[:end], "")
	if head != "" && !strings.HasSuffix(head, "\n") {
		head += "\n"
	}
	return []byte(head + text + strings.TrimLeft(strings.Join(lines[end:], ""), "\n"))
}

// replaceScalar replaces a value on its line; a comment behind it stays.
func replaceScalar(lines []string, at *yaml.Node, text string) ([]byte, error) {
	line := lines[at.Line-1]
	start := column(line, at.Column)
	length := len(at.Value)
	several := fmt.Errorf("line %d: the value goes over several lines", at.Line)
	switch empty := at.Value == "" && at.Style == 0; {
	case start == len(line) && !empty:
		return nil, several
	case at.Style == yaml.DoubleQuotedStyle || at.Style == yaml.SingleQuotedStyle:
		quote := line[start : start+1]
		closing := strings.Index(line[start+1:], quote)
		if closing < 0 || !strings.Contains(`"'`, quote) {
			return nil, several
		}
		length = closing + 2
	case empty: // "key:" without a value
		start = len(strings.TrimRight(line, "\r\n"))
		text = " " + text
	case at.Style != 0 || !strings.HasPrefix(line[start:], at.Value):
		return nil, several
	}
	lines[at.Line-1] = line[:start] + text + line[start+length:]
	return []byte(strings.Join(lines, "")), nil
}

// column turns a column, which counts characters from 1, into an index.
func column(line string, column int) int {
	index := 0
	for i := range line {
		if index++; index == column {
			return i
		}
	}
	return len(line)
}

// setFields sets fields of a block mapping; those that are not there come first.
func setFields(lines []string, object *yaml.Node, fields map[string]string) ([]byte, error) {
	first, missing := object.Content[0], map[string]string{}
	for _, key := range sorted(fields) {
		value, _ := lookup(object, key)
		if value == nil {
			missing[key] = fields[key]
			continue
		}
		if _, err := replaceScalar(lines, value, scalar(fields[key])); err != nil {
			return nil, err
		}
	}
	lines[first.Line-1] = block(missing, strings.Repeat(" ", first.Column-1)) + lines[first.Line-1]
	return []byte(strings.Join(lines, "")), nil
}

// replaceFlow turns {a: b} on one line, or nothing, into a block with the fields.
func replaceFlow(lines []string, key, value *yaml.Node, fields map[string]string) ([]byte, error) {
	all := map[string]string{}
	for i := 0; i+1 < len(value.Content); i += 2 {
		if value.Content[i].Line != key.Line || value.Content[i+1].Line != key.Line {
			return nil, fmt.Errorf("line %d: the object goes over several lines", key.Line)
		}
		all[value.Content[i].Value] = value.Content[i+1].Value
	}
	maps.Copy(all, fields)
	comment := ""
	if value.LineComment != "" {
		comment = " " + value.LineComment
	}
	lines[key.Line-1] = key.Value + ":" + comment + "\n" + block(all, "  ")
	return []byte(strings.Join(lines, "")), nil
}

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
		object.Content = append(object.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, existing)
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
