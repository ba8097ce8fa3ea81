package remote

import "context"

// Explain is what a person is told of an error of the network.
func Explain(c *Client, host string, err error) error {
	return c.Explain(context.Background(), c.Host(host), "read", host, err)
}

// SegmentBytes is what a client holds in memory of blobs that are read over several
// connections.
func SegmentBytes(c *Client) int { return c.segments.Used() * segmentSize }
