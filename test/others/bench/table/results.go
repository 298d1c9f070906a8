// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// results are the medians over all runs, by benchmark and unit.
type results map[name]map[string]float64

// name is a benchmark's name, "Choose/gpus=16/size=3/by=tandem".
type name string

// processors matches the testing package's suffix of a name.
var processors = regexp.MustCompile(`-\d+$`)

// read reads the lines of benchmarks, "BenchmarkName-2 100 1234 ns/op 56 B/op", and ignores other lines.
func read(in io.Reader) (results, error) {
	samples := map[name]map[string][]float64{}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		key := name(processors.ReplaceAllString(strings.TrimPrefix(fields[0], "Benchmark"), ""))
		if samples[key] == nil {
			samples[key] = map[string][]float64{}
		}
		for i := 2; i+1 < len(fields); i += 2 {
			if value, err := strconv.ParseFloat(fields[i], 64); err == nil {
				samples[key][fields[i+1]] = append(samples[key][fields[i+1]], value)
			}
		}
	}
	r := results{}
	for key, units := range samples {
		r[key] = map[string]float64{}
		for unit, values := range units {
			slices.Sort(values)
			r[key][unit] = values[len(values)/2]
		}
	}
	return r, lines.Err()
}

// names lists the names with results of a benchmark, in natural order. With a key, it lists only names with
// this value for the key, and removes the key.
func (r results) names(benchmark, key, value string) []name {
	var list []name
	for n := range r {
		if !strings.HasPrefix(string(n), benchmark+"/") || key != "" && n.get(key) != value {
			continue
		}
		if key != "" {
			n = n.without(key)
		}
		list = append(list, n)
	}
	slices.SortFunc(list, name.compare)
	return list
}

// compare orders names part by part, numbers as numbers.
func (n name) compare(m name) int {
	return slices.CompareFunc(strings.Split(string(n), "/"), strings.Split(string(m), "/"),
		func(a, b string) int {
			_, x, _ := strings.Cut(a, "=")
			_, y, _ := strings.Cut(b, "=")
			i, err := strconv.Atoi(x)
			j, err2 := strconv.Atoi(y)
			if err == nil && err2 == nil {
				return i - j
			}
			return strings.Compare(a, b)
		})
}

// get returns the value of a key, "" if absent.
func (n name) get(key string) string {
	for part := range strings.SplitSeq(string(n), "/") {
		if k, value, ok := strings.Cut(part, "="); ok && k == key {
			return value
		}
	}
	return ""
}

// number returns a numeric value, 0 for other values.
func (n name) number(key string) int {
	i, err := strconv.Atoi(n.get(key))
	if err != nil {
		return 0
	}
	return i
}

func (n name) with(key, value string) name { return name(string(n) + "/" + key + "=" + value) }

func (n name) without(key string) name {
	parts := strings.Split(string(n), "/")
	return name(strings.Join(slices.DeleteFunc(parts, func(part string) bool {
		return strings.HasPrefix(part, key+"=")
	}), "/"))
}

// question returns the keys and values.
func (n name) question() string {
	_, question, _ := strings.Cut(string(n), "/")
	return strings.ReplaceAll(question, "/", " ")
}
