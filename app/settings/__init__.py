"""What a person sets once for the whole program, and the dialogs to do so."""
