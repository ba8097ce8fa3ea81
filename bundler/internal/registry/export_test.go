package registry

import "context"

// Explain is what a person is told of an error of the network.
func Explain(c *Client, host string, err error) error {
	return c.explain(context.Background(), c.host(host), "read", host, err)
}

// SegmentBytes is what a client holds in memory of blobs that are read over several
// connections.
func SegmentBytes(c *Client) int {
	c.segments.mu.Lock()
	defer c.segments.mu.Unlock()
	return c.segments.used * segmentSize
}
