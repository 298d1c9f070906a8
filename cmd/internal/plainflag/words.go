// SPDX-License-Identifier: Apache-2.0

package plainflag

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/coordination/spelling"
)

// wordsKey is the annotation of a flag with the words of its value.
const wordsKey = "words"

// Words names the words that the value of a flag consists of, separated by commas if several. [Error]
// proposes the nearest of them for another word.
func Words(set *pflag.FlagSet, flag string, words ...string) {
	// The error means an unknown flag, which tests would detect.
	_ = set.SetAnnotation(flag, wordsKey, words)
}

// question asks for the word that the first unknown word of a value probably means.
func question(f *pflag.Flag, value string) string {
	known := f.Annotations[wordsKey]
	for word := range strings.SplitSeq(value, ",") {
		word = strings.TrimSpace(word)
		if !slices.Contains(known, word) {
			return spelling.Question(word, known)
		}
	}
	return ""
}

// choice is the value of a flag with a fixed list of words.
type choice struct {
	value *string
	words []string
}

// Choice adds a flag whose value is one of the words.
func Choice(set *pflag.FlagSet, value *string, name, preset, usage string, words ...string) {
	*value = preset
	set.Var(&choice{value, words}, name, usage)
	Words(set, name, words...)
}

// String implements pflag.Value.
func (c *choice) String() string {
	if c.value == nil {
		return ""
	}
	return *c.value
}

// Set implements pflag.Value.
func (c *choice) Set(text string) error {
	if !slices.Contains(c.words, text) {
		return fmt.Errorf("want %s", List(c.words))
	}
	*c.value = text
	return nil
}

// Type implements pflag.Value.
func (c *choice) Type() string { return "string" }

// List returns words as "a, b or c", without empty ones.
func List(words []string) string {
	words = slices.DeleteFunc(slices.Clone(words), func(word string) bool { return word == "" })
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
