package registry

import "context"

// Explain is what a person is told of an error of the network.
func Explain(c *Client, host string, err error) error {
	return c.explain(context.Background(), c.host(host), "read", host, err)
}
