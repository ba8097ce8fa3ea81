package remote

import ocispec "github.com/opencontainers/image-spec/specs-go/v1"

const (
	// firstChunk is the first size of a part that is tried where a whole blob is not
	// taken; each further refusal makes it a quarter, down to leastChunk.
	firstChunk = 64 << 20
	leastChunk = 256 << 10
	// cutChunk is that where the connection broke in the middle of a whole blob of
	// more than cutLeast bytes: a proxy may have ended it, and otherwise the part
	// that arrived need not be sent again.
	cutChunk = 16 << 20
	cutLeast = 1 << 20
)

// cut is how a blob is cut into the bodies of requests.
type cut struct {
	manner manner
	size   int64 // bytes of one body; 0: all
}

// manner is how a size of parts came about, and what is known of it.
type manner int

const (
	whole     manner = iota // as one body
	onlyWhole               // as one body: the registry takes no parts
	inParts                 // a size that the user gave, or that the registry has taken
	trying                  // a size that is tried since the registry refused a larger body
	guessing                // a size that is tried since a connection broke; whether it takes parts is not known
	guessed                 // the same, and the registry has taken one
)

// applies tells whether a blob of a size is more than one body.
func (c cut) applies(size int64) bool { return c.size > 0 && c.size < size }

// isGuess tells whether nobody has said that parts are called for.
func (c cut) isGuess() bool { return c.manner == guessing || c.manner == guessed }

// isProbe tells whether the registry has taken no part of this size yet.
func (c cut) isProbe() bool { return c.manner == trying || c.manner == guessing }

// tried is the manner of a size that is tried next: a guess stays one.
func (c cut) tried() manner {
	if c.isGuess() {
		return guessing
	}
	return trying
}

// taken takes note that the registry has taken a part.
func (c *cut) taken() {
	switch c.manner {
	case trying:
		c.manner = inParts
	case guessing:
		c.manner = guessed
	case whole, onlyWhole, inParts, guessed:
	}
}

// shrink takes the next smaller size for a blob, not below the least, and tells whether
// there is one.
func (c *cut) shrink(d ocispec.Descriptor, first, least int64, to manner) bool {
	next := first
	for next >= least && (next >= d.Size || (c.size > 0 && next >= c.size)) {
		next /= 4
	}
	if next < least {
		return false
	}
	c.size, c.manner = next, to
	return true
}
