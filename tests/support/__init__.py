"""What several test folders share: real servers, their models, small builders. Must not patch the product."""
