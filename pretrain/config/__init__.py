"""What a user may set, and how it is read; the errors that users see."""
