// SPDX-License-Identifier: Apache-2.0

// Package browser looks at the page of "tandem status --serve" with Chromium: what it shows of recorded
// machines, that it follows what happens, that a keyboard reaches every device, and that it is readable.
// Where no chromium is installed the tests are skipped.
package browser

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var (
	screenshots = flag.String("screenshots", "", "folder to write screenshots into")
	documents   = flag.String("documents", "", "folder to write the screenshots of the documents into")
)

// browser is a tab, 1280 pixels wide. What the page complains of is in complaints.
type browser struct {
	context.Context
	t *testing.T

	mu         sync.Mutex
	complaints []string
}

// open starts a browser of its own, in the light or in the dark.
func open(t *testing.T, scheme string) *browser {
	t.Helper()
	path := chromium(t)
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.WindowSize(1280, 900),
		chromedp.WSURLReadTimeout(3*time.Minute), // a busy computer starts it slowly
		chromedp.NoSandbox, chromedp.DisableGPU,  // for root, and for a machine without one
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true))
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &browser{Context: ctx, t: t}
	chromedp.ListenTarget(ctx, b.listen)
	dark := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}
	b.do(emulation.SetEmulatedMedia().WithFeatures(dark),
		emulation.SetDeviceMetricsOverride(1280, 900, 1, false),
		emulation.SetFocusEmulationEnabled(true))
	return b
}

func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no chromium is installed (Debian's package chromium)")
	return ""
}

// listen notes errors, the browser's own among them: what the content security policy stops, and what cannot
// be loaded.
func (b *browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.complaints = append(b.complaints, e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
			b.complaints = append(b.complaints, fmt.Sprint("console: ", e.Args))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.LevelError || e.Entry.Level == log.LevelWarning {
			b.complaints = append(b.complaints, fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	}
}

// quiet fails where the page complained, but for what contains one of these.
func (b *browser) quiet(expected ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
complaints:
	for _, c := range b.complaints {
		for _, e := range expected {
			if strings.Contains(c, e) {
				continue complaints
			}
		}
		b.t.Errorf("the page complains: %s", c)
	}
}

func (b *browser) do(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// value is what a JavaScript expression is.
func value[T any](b *browser, expression string) (v T) {
	b.t.Helper()
	b.do(chromedp.Evaluate(expression, &v))
	return v
}

// await waits until an expression is true.
func (b *browser) await(expression string) {
	b.t.Helper()
	if err := chromedp.Run(b,
		chromedp.Poll(expression, nil, chromedp.WithPollingTimeout(time.Minute))); err != nil {
		about := value[string](b, `document.body.innerText.slice(0, 400)`)
		b.t.Fatalf("%s: %v; the page says %q", expression, err, about)
	}
}

// size makes the tab so wide.
func (b *browser) size(width int) {
	b.t.Helper()
	b.do(emulation.SetDeviceMetricsOverride(int64(width), 900, 1, false))
}

// screenshot writes the whole page where the flag says.
func (b *browser) screenshot(name string) {
	b.t.Helper()
	b.write(*screenshots, name)
}

// document does so for a document, where the other flag says: as high as the page is, and at a time that is
// always the same.
func (b *browser) document(name string) {
	b.t.Helper()
	height := value[float64](b, `document.querySelector("main").getBoundingClientRect().height`)
	b.do(chromedp.Evaluate(`part("live").textContent = "as of 12:00:00"`, nil),
		emulation.SetDeviceMetricsOverride(1280, int64(height)+32, 1, false))
	b.write(*documents, name)
}

func (b *browser) write(dir, name string) {
	b.t.Helper()
	if dir == "" {
		return
	}
	var png []byte
	b.do(chromedp.FullScreenshot(&png, 100))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}
