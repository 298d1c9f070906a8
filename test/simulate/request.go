// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"strconv"
	"strings"
)

// Request is a container's request.
type Request struct{ GPUs, VFs int }

// String returns the request in the format of ParseMix.
func (r Request) String() string { return fmt.Sprintf("%d+%d", r.GPUs, r.VFs) }

// MarshalText returns String, for JSON.
func (r Request) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText parses the format of MarshalText.
func (r *Request) UnmarshalText(text []byte) error {
	parsed, err := parseRequest(string(text))
	*r = parsed
	return err
}

// Of returns the number of requested devices of a kind.
func (r Request) Of(kind Kind) int {
	if kind == GPU {
		return r.GPUs
	}
	return r.VFs
}

// Both reports whether the container asks for pairs.
func (r Request) Both() bool { return r.GPUs > 0 && r.VFs > 0 }

// Pairs returns the number of GPUs that can have a VF of their own.
func (r Request) Pairs() int { return min(r.GPUs, r.VFs) }

func parseRequest(s string) (Request, error) {
	gpus, vfs, ok := strings.Cut(s, "+")
	g, err := strconv.Atoi(gpus)
	v, err2 := strconv.Atoi(vfs)
	if !ok || err != nil || err2 != nil || g < 0 || v < 0 || g+v == 0 {
		return Request{}, fmt.Errorf("parse request %q: want GPUs+VFs, as in 2+2", s)
	}
	return Request{g, v}, nil
}

// Mix is the distribution of requests.
type Mix []Share

// Share is a request and its weight among all of a mix.
type Share struct {
	Request Request `json:"request"`
	Weight  float64 `json:"weight"`
}

// DefaultMix has pairs of four sizes and three kinds of bystander, all as often.
const DefaultMix = "1+1,2+2,4+4,8+8,1+0,2+0,0+1"

// ParseMix parses comma-separated requests, each with an optional weight after a colon: "1+1:3,8+8,1+0:0.5".
func ParseMix(s string) (Mix, error) {
	var mix Mix
	for part := range strings.SplitSeq(s, ",") {
		request, weight, weighted := strings.Cut(strings.TrimSpace(part), ":")
		r, err := parseRequest(request)
		if err != nil {
			return nil, err
		}
		w := 1.0
		if weighted {
			w, err = strconv.ParseFloat(weight, 64)
			if err != nil || !(w > 0 && w < 1e9) {
				return nil, fmt.Errorf("parse weight %q of request %s: want a number above 0", weight, request)
			}
		}
		mix = append(mix, Share{r, w})
	}
	return mix, nil
}

// String returns the mix in the format of ParseMix.
func (m Mix) String() string {
	parts := make([]string, len(m))
	for i, s := range m {
		parts[i] = s.Request.String()
		if s.Weight != 1 {
			parts[i] += ":" + strconv.FormatFloat(s.Weight, 'g', -1, 64)
		}
	}
	return strings.Join(parts, ",")
}

// At returns the index of the request at a point between 0 and 1.
func (m Mix) At(u float64) int {
	total := 0.0
	for _, s := range m {
		total += s.Weight
	}
	for i, s := range m {
		u -= s.Weight / total
		if u < 0 {
			return i
		}
	}
	return len(m) - 1
}
