package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tandem-k8s/tandem/coordination/kubelet/configuration"
)

// patchYAML changes lines, not the document: a document that is written anew loses the look that its owner
// gave it.
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
	at := configuration.Mapping(&document)
	if at == nil && strings.TrimSpace(string(content)) != "" && document.Kind != 0 {
		return nil, errors.New("the configuration is no object")
	}
	fields, nested := value.(map[string]string)
	existing, keyNode := configuration.Lookup(at, key)
	switch {
	case existing == nil && nested:
		return appendLines(lines, key+":\n"+block(fields, "  ")), nil
	case existing == nil:
		return appendLines(lines, fmt.Sprintf("%s: %s\n", key, scalar(value))), nil
	case nested && existing.Kind == yaml.MappingNode && existing.Style&yaml.FlowStyle == 0 &&
		len(existing.Content) > 0:
		return setFields(lines, existing, fields)
	case nested:
		return replaceFlow(lines, keyNode, existing, fields)
	case existing.Kind != yaml.ScalarNode:
		return nil, fmt.Errorf("line %d holds more than a value", existing.Line)
	default:
		return replaceScalar(lines, existing, scalar(value))
	}
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
		value, _ := configuration.Lookup(object, key)
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
