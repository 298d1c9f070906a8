// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// Limits of the kubelet's lists of pods in bytes. The API server takes objects of some 1.5 MB, which JSON can
// make six times as long; of the largest ones the limit of a list takes some thirty.
const (
	MaxPods = 48 << 20 // all pods
	maxPod  = 12 << 20 // one pod
)

// ErrTooLarge means that the kubelet's list of pods, or a pod, is larger than its limit.
var ErrTooLarge = errors.New("the kubelet's list of pods is too large")

// errTooLarge returns an error that names the limit.
func errTooLarge(what string, limit int) error {
	return fmt.Errorf("%w: %s has more than %d MiB; find the owner of large pods on this node",
		ErrTooLarge, what, limit>>20)
}

// splitMessage calls each with every pod of an answer: those of the field with the number 1, as in the
// answers of the Pods API and of PodResources. Other fields, of a newer kubelet, are skipped. A pod is valid
// until the next one.
func splitMessage(message byteReader, each func(pod []byte) error) error {
	var pod []byte
	for {
		tag, err := binary.ReadUvarint(message)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && tag != 1<<3|2 { // the number, and a length follows
			if err = skipValue(message, tag); err == nil {
				continue
			}
		}
		var length uint64
		if err == nil {
			length, err = binary.ReadUvarint(message)
		}
		if err == nil && length > maxPod {
			err = errTooLarge("a pod", maxPod)
		}
		if err == nil {
			pod = resizeBuffer(pod, int(length))
			_, err = io.ReadFull(message, pod)
		}
		if err != nil {
			return fmt.Errorf("split the pods of the kubelet: %w", err)
		}
		if err := each(pod); err != nil {
			return err
		}
	}
}

// skipValue reads the value of a field.
func skipValue(message byteReader, tag uint64) (err error) {
	var length uint64
	switch tag & 7 {
	case 0:
		_, err = binary.ReadUvarint(message)
	case 1:
		length = 8
	case 2:
		length, err = binary.ReadUvarint(message)
	case 5:
		length = 4
	default:
		err = fmt.Errorf("unknown tag %d", tag)
	}
	if err == nil {
		_, err = io.CopyN(io.Discard, message, int64(min(length, math.MaxInt64)))
	}
	return noEOF(err)
}

type byteReader interface {
	io.Reader
	io.ByteReader
}

func resizeBuffer(buffer []byte, length int) []byte {
	if cap(buffer) < length {
		return make([]byte, length)
	}
	return buffer[:length]
}

// splitList calls each with every pod of a PodList in JSON, while it arrives. A pod is valid until the next
// one.
func splitList(list io.Reader, each func(EncodedPod) error) error {
	head := json.NewDecoder(list)
	some, err := findItems(head)
	if err != nil {
		return fmt.Errorf("find the pods in the kubelet's list: %w", err)
	}
	if !some {
		return nil
	}
	s := splitter{Reader: bufio.NewReaderSize(io.MultiReader(head.Buffered(), list), 64<<10)}
	for {
		more, err := s.nextPod()
		if err != nil {
			return fmt.Errorf("split the pods of the kubelet: %w", err)
		}
		if !more {
			return nil
		}
		if err := each(EncodedPod{content: s.pod, isJSON: true}); err != nil {
			return err
		}
	}
}

// findItems reads up to the begin of the items; false for null, which a kubelet without pods writes.
func findItems(head *json.Decoder) (some bool, err error) {
	begin, err := head.Token()
	if err == nil && begin != json.Delim('{') {
		err = errors.New("no JSON object")
	}
	for err == nil {
		var key json.Token
		key, err = head.Token()
		if err != nil {
			break
		}
		if key == "items" {
			begin, err = head.Token()
			if err == nil && begin != nil && begin != json.Delim('[') {
				err = errors.New("items are no list")
			}
			return begin != nil, err
		}
		var other json.RawMessage
		err = head.Decode(&other)
	}
	return false, err
}

// splitter finds the ends of pods in JSON. It looks for quotes and brackets only: package json, which judges
// each byte several times, judges a pod when it is decoded.
type splitter struct {
	*bufio.Reader
	pod []byte
}

// nextPod reads the next pod, or the end of the list.
func (s *splitter) nextPod() (more bool, err error) {
	for {
		c, err := s.ReadByte()
		switch {
		case err != nil:
			return false, noEOF(err)
		case c == '{':
			s.pod = append(s.pod[:0], c)
			return true, s.readObject()
		case c == ']':
			return false, nil
		case !bytes.ContainsRune([]byte(", \t\r\n"), rune(c)):
			return false, fmt.Errorf("%q is not the begin of a pod", c)
		}
	}
}

// readObject reads the rest of a JSON object.
func (s *splitter) readObject() error {
	for depth := 1; depth > 0; {
		if _, err := s.Peek(1); err != nil {
			return noEOF(err)
		}
		ready, _ := s.Peek(s.Buffered())
		n := bytes.IndexAny(ready, `"{}[]`) + 1
		if n == 0 {
			n = len(ready)
		}
		if err := s.takeBytes(ready[:n]); err != nil {
			return err
		}
		switch s.pod[len(s.pod)-1] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			if err := s.readText(); err != nil {
				return err
			}
		}
	}
	return nil
}

// readText reads the rest of a JSON string.
func (s *splitter) readText() error {
	for {
		part, err := s.ReadSlice('"')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return noEOF(err)
		}
		if err := s.keepBytes(part); err != nil {
			return err
		}
		if err == nil && !isEscaped(s.pod) {
			return nil
		}
	}
}

// isEscaped reports whether an odd number of backslashes is before the last byte.
func isEscaped(text []byte) bool {
	before := text[:len(text)-1]
	return (len(before)-len(bytes.TrimRight(before, `\`)))%2 == 1
}

// takeBytes keeps the next bytes.
func (s *splitter) takeBytes(ready []byte) error {
	if err := s.keepBytes(ready); err != nil {
		return err
	}
	_, err := s.Discard(len(ready))
	return err
}

func (s *splitter) keepBytes(part []byte) error {
	if len(s.pod)+len(part) > maxPod {
		return errTooLarge("a pod", maxPod)
	}
	s.pod = append(s.pod, part...)
	return nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
