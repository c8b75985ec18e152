"""What a share consumer (KIP-932) consists of."""
