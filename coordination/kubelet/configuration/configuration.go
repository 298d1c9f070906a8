// SPDX-License-Identifier: Apache-2.0

// Package configuration reads files of the kubelet's configuration as the kubelet does.
package configuration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
	lenient "sigs.k8s.io/yaml"
)

// FileName is kubeadm's name of the kubelet's configuration, below the kubelet's folder.
const FileName = "config.yaml"

// FileError is an error of a file of the configuration.
type FileError struct {
	File string
	Err  error
}

// Error returns a text with the file once.
func (e *FileError) Error() string {
	var path *fs.PathError
	if errors.As(e.Err, &path) {
		return fmt.Sprintf("%s: %v", e.File, path.Err) // without the second name
	}
	return fmt.Sprintf("%s: %v", e.File, e.Err)
}

// Unwrap returns the error without the file.
func (e *FileError) Unwrap() error { return e.Err }

// DropIns returns the files of a folder, "" for none, in the kubelet's order of merging
// (mergeKubeletConfigurations in cmd/kubelet/app/server.go). The error is a [FileError].
func DropIns(dir string) ([]string, error) {
	if dir == "" {
		return nil, nil
	}
	var files []string
	at := dir
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		at = path
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".conf" {
			files = append(files, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, &FileError{at, err}
	}
	return files, nil
}

// Kind and Version identify a file of the kubelet's configuration. The kubelet does not start with a file or
// drop-in without them (mergeKubeletConfigurations in cmd/kubelet/app/server.go).
const (
	Kind    = "KubeletConfiguration"
	Version = "kubelet.config.k8s.io/v1beta1"
)

// checkKind returns an error for a file of another program or of a version with unknown keys.
func checkKind(top *yaml.Node) error {
	value := func(key string) string {
		if node, _ := Lookup(top, key); node != nil && node.Value != "" {
			return node.Value
		}
		return "none"
	}
	if kind, version := value("kind"), value("apiVersion"); kind != Kind || version != Version {
		return fmt.Errorf("it is no %s of %s: its kind is %s, its apiVersion %s", Kind, Version, kind, version)
	}
	return nil
}

// Decode decodes a KubeletConfiguration and returns the keys of the file. Errors name the line.
func Decode(content []byte, into any) (keys []string, err error) {
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		return nil, err
	}
	top := Mapping(&document)
	if top == nil {
		return nil, errors.New("it is no object of keys and values")
	}
	if err := checkKind(top); err != nil {
		return nil, err
	}
	err = lenient.Unmarshal(content, into)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		key, _, _ := strings.Cut(wrong.Field, ".")
		if _, name := Lookup(top, key); name != nil {
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

// Mapping returns the top of the document, nil if empty.
func Mapping(document *yaml.Node) *yaml.Node {
	if document.Kind == yaml.DocumentNode && len(document.Content) == 1 &&
		document.Content[0].Kind == yaml.MappingNode {
		return document.Content[0]
	}
	return nil
}

// Lookup returns the value and the name of a key of a YAML object, nil for none.
func Lookup(object *yaml.Node, key string) (value, name *yaml.Node) {
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
