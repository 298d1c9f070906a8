// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Flags are the flags of NVIDIA's own plugin on the command line.
type Flags struct {
	settings []setting
	given    []*argument // of every setting
}

// argument is one setting on the command line, as a pflag.Value.
type argument struct {
	*setting
	values []string // nil for nothing
}

// Register adds the flags to a set. Load can be called once the set was parsed.
func Register(set *pflag.FlagSet) *Flags {
	f := &Flags{settings: settings()}
	for i := range f.settings {
		s := &f.settings[i]
		g := &argument{setting: s}
		f.given = append(f.given, g)
		usage := s.usage + " [" + strings.Join(s.env, ", ") + "]"
		for n, name := range s.names {
			flag := set.VarPF(g, name, "", usage)
			if s.kind == boolean {
				flag.NoOptDefVal = "true"
			}
			flag.Hidden = n > 0
		}
	}
	return f
}

// String returns the value unless environment or file set another.
func (g *argument) String() string {
	if g.setting == nil {
		return ""
	}
	if g.values != nil {
		return strings.Join(g.values, ",")
	}
	return strings.Join(g.preset, ",")
}

// Set adds a value from the command line; a list accumulates values.
func (g *argument) Set(value string) error {
	values, err := g.kind.parse(value)
	if err != nil {
		return err
	}
	if g.kind == list || g.kind == integer {
		values = append(slices.Clone(g.values), values...)
	}
	g.values = values
	return nil
}

// Type returns the word for the kind of value in the help.
func (g *argument) Type() string { return string(g.kind) }

// File returns the configuration file of the command line, or "".
func (f *Flags) File() string {
	for _, g := range f.given {
		if g.names[0] == "config-file" && len(g.values) > 0 {
			return g.values[0]
		}
	}
	return ""
}

// Load merges flags, environment and configuration file. Each call rereads the file.
func (f *Flags) Load(env func(string) (string, bool)) (Config, error) {
	c := Config{said: map[string]origin{}}
	for i := range f.settings {
		if err := f.fromOutside(&c, i, env); err != nil {
			return Config{}, err
		}
	}
	c.Xids = readXids(env)
	if c.File != "" {
		if err := f.fromFile(&c); err != nil {
			return Config{}, err
		}
	}
	if err := c.check(); err != nil {
		return Config{}, err
	}
	c.warn()
	return c, nil
}

// fromOutside applies a setting from flag or environment, else its default.
func (f *Flags) fromOutside(c *Config, i int, env func(string) (string, bool)) error {
	s := &f.settings[i]
	if values := f.given[i].values; values != nil {
		c.take(s, values, "--"+s.names[0])
		return nil
	}
	for _, variable := range s.env {
		value, set := env(variable)
		if !set {
			continue
		}
		values, err := s.kind.parse(value)
		if err != nil {
			return fmt.Errorf("%s: %w", variable, err)
		}
		c.take(s, values, variable)
		return nil
	}
	c.take(s, s.preset, "")
	return nil
}

// fromFile applies the file's values of settings without a flag or variable, and the settings that only the
// file has.
func (f *Flags) fromFile(c *Config) error {
	content, err := readFile(c.File)
	if err != nil {
		return err
	}
	for i := range f.settings {
		s := &f.settings[i]
		if s.key == "" || c.said[s.names[0]].source != "" {
			continue
		}
		if values := s.file(content); values != nil {
			c.take(s, values, s.key+" of "+c.File)
		}
	}
	if len(content.Resources.GPUs)+len(content.Resources.MIGs) > 0 {
		c.Warnings = append(c.Warnings,
			c.File+": resources is not supported and is ignored, as by NVIDIA's own plugin")
	}
	var warnings []string
	c.Sharing, warnings, err = content.sharing(c.File)
	slices.Sort(warnings)
	c.Warnings = append(c.Warnings, slices.Compact(warnings)...)
	return err
}

// take sets a setting and its source.
func (c *Config) take(s *setting, values []string, source string) {
	c.said[s.names[0]] = origin{strings.Join(values, ","), source}
	s.apply(c, values)
}
