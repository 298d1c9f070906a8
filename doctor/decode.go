package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	lenient "sigs.k8s.io/yaml"
)

// decode reads a KubeletConfiguration and returns the keys that it sets. Errors name the line.
func decode(content []byte, into any) (keys []string, err error) {
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		return nil, err
	}
	top := mapping(&document)
	if top == nil {
		return nil, errors.New("it is no object of keys and values")
	}
	err = lenient.Unmarshal(content, into)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		key, _, _ := strings.Cut(wrong.Field, ".")
		if _, name := lookup(top, key); name != nil {
			return nil, fmt.Errorf("line %d: the value of %s cannot be an %s", name.Line, key, wrong.Value)
		}
	}
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(top.Content); i += 2 {
		keys = append(keys, top.Content[i].Value)
	}
	return keys, nil
}
