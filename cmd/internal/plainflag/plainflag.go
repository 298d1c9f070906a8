// SPDX-License-Identifier: Apache-2.0

// Package plainflag has what the command lines of all programs share: plain words for pflag's errors, and
// flags with a fixed list of words.
package plainflag

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/coordination/spelling"
)

// Error returns an error of parsing a set in plain words. For a value that is not a number or a boolean,
// pflag names the failed function of Go's library; Error names the expected value. A misspelled flag, and a
// misspelled word of a flag with [Words], gets the nearest known one.
func Error(set *pflag.FlagSet, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	var number *strconv.NumError
	switch {
	case errors.As(err, &unknown):
		return withQuestion(err, spelling.Propose(similarFlags(set, unknown.GetSpecifiedName())))
	case !errors.As(err, &invalid):
		return err
	case errors.As(err, &number):
		said, _ := strings.CutSuffix(invalid.Error(), invalid.Unwrap().Error())
		return fmt.Errorf("%s%s", said, describeValues(invalid.GetFlag().Value.Type(), number))
	default:
		return withQuestion(err, proposeWord(invalid.GetFlag(), invalid.GetValue()))
	}
}

func withQuestion(err error, question string) error {
	if question == "" {
		return err
	}
	return fmt.Errorf("%w%s", err, question)
}

// similarFlags returns the flags of the help page with similar names, with their dashes.
func similarFlags(set *pflag.FlagSet, name string) []string {
	var names []string
	set.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	nearest := spelling.Nearest(name, names)
	for i := range nearest {
		nearest[i] = "--" + nearest[i]
	}
	return nearest
}

// describeValues describes the values of a flag of a type.
func describeValues(kind string, given *strconv.NumError) string {
	switch {
	case errors.Is(given, strconv.ErrRange):
		return "the number is too large"
	case kind == "bool":
		return "want true or false"
	case strings.HasPrefix(kind, "uint"):
		return "want a whole number, 0 or more"
	case strings.HasPrefix(kind, "int"):
		return "want a whole number"
	default:
		return "want a number"
	}
}

// wordsKey is the annotation of a flag with the words of its value.
const wordsKey = "words"

// Words names the words that the value of a flag consists of, separated by commas if several. [Error]
// proposes the nearest of them for another word.
func Words(set *pflag.FlagSet, flag string, words ...string) {
	// The error means an unknown flag, which tests would detect.
	_ = set.SetAnnotation(flag, wordsKey, words)
}

// proposeWord asks for the word that the first unknown word of a value probably means.
func proposeWord(f *pflag.Flag, value string) string {
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
type choice[T ~string] struct {
	value *T
	words []T
}

// Choice adds a flag whose value is one of the words.
func Choice[T ~string](set *pflag.FlagSet, value *T, name string, preset T, usage string, words ...T) {
	*value = preset
	set.Var(&choice[T]{value, words}, name, usage)
	Words(set, name, asTexts(words)...)
}

func asTexts[T ~string](words []T) (list []string) {
	for _, word := range words {
		list = append(list, string(word))
	}
	return list
}

// String implements pflag.Value.
func (c *choice[T]) String() string {
	if c.value == nil {
		return ""
	}
	return string(*c.value)
}

// Set implements pflag.Value.
func (c *choice[T]) Set(text string) error {
	if !slices.Contains(c.words, T(text)) {
		return fmt.Errorf("want %s", spelling.List(asTexts(c.words)))
	}
	*c.value = T(text)
	return nil
}

// Type implements pflag.Value.
func (*choice[T]) Type() string { return "string" }
