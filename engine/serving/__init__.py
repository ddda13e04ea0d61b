"""The HTTP API: any OpenAI client, served from the same scheduler that the window's chats use.

Imported only when used. ``server.py`` starts it, ``app.py`` lists the routes.
"""

API_CHAT = "API"
"""What the window's instrument calls the streams of a server, in place of a chat's id."""
