// Package flate is the standard library's, under the name that nats.go imports: another one, from a package of 30 MB,
// for the compression of WebSocket frames, which these tests do not use.
package flate

import "compress/flate"

// BestSpeed is the standard library's.
const BestSpeed = flate.BestSpeed

// Writer is the standard library's.
type Writer = flate.Writer

// Resetter is the standard library's.
type Resetter = flate.Resetter

// NewReader is the standard library's.
var NewReader = flate.NewReader

// NewWriter is the standard library's.
var NewWriter = flate.NewWriter
