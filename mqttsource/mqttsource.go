// Package mqttsource reads the brokers of others.
package mqttsource
